package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// An image is drawn as SVG: a panel for each run, one below the other.
type image struct {
	XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
	ViewBox string   `xml:"viewBox,attr"`
	Role    string   `xml:"role,attr"`
	Title   string   `xml:"title"`
	Style   styles   `xml:"style"`
	Panels  []panel  `xml:"g"`
}

type styles struct {
	Rules string `xml:",innerxml"` // line by line, as they are
}

type panel struct {
	Move  string  `xml:"transform,attr"`
	Lines []line  `xml:"line"`
	Area  shape   `xml:"path"`
	Words []words `xml:"text"`
}

type line struct {
	Class string  `xml:"class,attr"`
	X1    float64 `xml:"x1,attr"`
	Y1    float64 `xml:"y1,attr"`
	X2    float64 `xml:"x2,attr"`
	Y2    float64 `xml:"y2,attr"`
}

type shape struct {
	D string `xml:"d,attr"`
}

type words struct {
	Class string  `xml:"class,attr,omitempty"`
	X     float64 `xml:"x,attr"`
	Y     float64 `xml:"y,attr"`
	Text  string  `xml:",chardata"`
}

// style is readable on light and on dark pages.
const style = `
text { font: 12px sans-serif; fill: #444 }
.title { font-weight: bold }
.y { text-anchor: end }
.x { text-anchor: middle }
path { fill: #4a7ebb; fill-opacity: .35; stroke: #4a7ebb; stroke-width: 1.2 }
.grid { stroke: #888; stroke-opacity: .3 }
.limit { stroke: #c0504d; stroke-dasharray: 5 3 }
@media (prefers-color-scheme: dark) { text { fill: #ccc } path { fill: #7aa6d8; stroke: #7aa6d8 } .limit { stroke: #e08a85 } }
`

// The measures of a panel, in units of the image.
const (
	left, above   = 34, 24
	wide, high    = 700, 110
	right, nether = 16, 40
)

// draw draws how many programs ran in each run.
func draw(list []*run) ([]byte, error) {
	const every = above + high + nether
	img := image{
		ViewBox: fmt.Sprintf("0 0 %d %d", left+wide+right, every*len(list)), Role: "img",
		Title: "How many programs run at once, over time", Style: styles{style},
	}
	for i, r := range list {
		p := r.panel()
		p.Move = fmt.Sprintf("translate(%d %d)", left, every*i+above)
		img.Panels = append(img.Panels, p)
	}
	b, err := xml.MarshalIndent(img, "", " ")
	return append(b, '\n'), err
}

// panel draws one run; its origin is the upper left corner of the area.
func (r *run) panel() panel {
	span := max(r.Makespan, 0.001)
	x := func(seconds float64) float64 { return tenths(wide * seconds / span) }
	y := func(running float64) float64 { return tenths(high - high*running/float64(max(r.Limit, 1))) }
	var p panel
	p.Words = append(p.Words, words{"title", 0, -8, fmt.Sprintf("%s: efficiency %.3f", r.title, r.efficiency())})
	for _, n := range []int{0, r.Limit / 2, r.Limit} {
		class := "grid"
		if n == r.Limit {
			class = "limit"
		}
		at := y(float64(n))
		p.Lines = append(p.Lines, line{class, 0, at, wide, at})
		p.Words = append(p.Words, words{"y", -6, at + 4, fmt.Sprint(n)})
	}
	for s := 0.0; s <= span; s += tick(span) {
		p.Lines = append(p.Lines, line{"grid", x(s), 0, x(s), high})
		p.Words = append(p.Words, words{"x", x(s), high + 16, fmt.Sprintf("%g s", s)})
	}
	var d strings.Builder
	fmt.Fprintf(&d, "M0 %d", high)
	for i, n := range r.Curve { // the mean of a part stands in its middle
		fmt.Fprintf(&d, "L%g %g", x((float64(i)+0.5)*r.CurveEvery), y(n))
	}
	fmt.Fprintf(&d, "L%d %dZ", wide, high)
	p.Area.D = d.String()
	return p
}

// tick returns how far marks of time are apart: there are ten or fewer.
func tick(span float64) float64 {
	for step := 0.1; ; step *= 10 {
		for _, n := range []float64{1, 2, 3, 5} {
			if span/(n*step) <= 10 {
				return n * step
			}
		}
	}
}

func tenths(v float64) float64 { return float64(int(v*10+0.5)) / 10 }
