package observe

import (
	"context"
	"io"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// NewLog returns a log that writes text or JSON to w, and says of each record which request, job,
// tenant and trace it belongs to, as far as its context knows.
func NewLog(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(logHandler{slog.NewJSONHandler(w, o)})
	}
	return slog.New(logHandler{slog.NewTextHandler(w, o)})
}

type attrsKey struct{}

// With returns a context whose records in the log have these attributes.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	had, _ := ctx.Value(attrsKey{}).([]slog.Attr)
	return context.WithValue(ctx, attrsKey{}, append(slices.Clip(had), attrs...))
}

// A logHandler adds what the context of a record knows.
type logHandler struct{ slog.Handler }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if attrs, ok := ctx.Value(attrsKey{}).([]slog.Attr); ok {
		says := map[string]bool{}
		r.Attrs(func(a slog.Attr) bool {
			says[a.Key] = true
			return true
		})
		r = r.Clone()
		for _, a := range attrs {
			if !says[a.Key] {
				r.AddAttrs(a)
			}
		}
	}
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace", s.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }
