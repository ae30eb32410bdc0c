package gather

import (
	"slices"
	"sync"
	"testing"
)

func TestQueue(t *testing.T) {
	var q Queue[int]
	begun, goOn := make(chan []int), make(chan bool)
	serve := func(batch []int) {
		begun <- batch
		<-goOn
	}
	add := func(from, to int) {
		for i := from; i < to; i++ {
			q.Add(i, 3, serve)
		}
	}
	want := func(batch ...int) {
		t.Helper()
		if got := <-begun; !slices.Equal(got, batch) {
			t.Errorf("%v are served, want %v", got, batch)
		}
	}
	add(0, 1)
	want(0) // at once, and alone
	add(1, 6)
	goOn <- true
	want(1, 2, 3)
	add(6, 7)
	goOn <- true
	want(4, 5, 6)
	goOn <- true
	add(7, 8)
	want(7)
	goOn <- true
}

func TestQueueServesAll(t *testing.T) {
	const values = 1000
	var q Queue[int]
	var done sync.WaitGroup
	done.Add(values)
	var mu sync.Mutex
	seen := map[int]int{}
	serving := 0
	for i := range values {
		go q.Add(i, 7, func(batch []int) {
			mu.Lock()
			if serving++; serving > 1 || len(batch) > 7 {
				t.Errorf("%d batches at once, one of %d", serving, len(batch))
			}
			mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			for _, v := range batch {
				seen[v]++
				done.Done()
			}
			serving--
		})
	}
	done.Wait()
	for i := range values {
		if seen[i] != 1 {
			t.Errorf("%d was served %d times", i, seen[i])
		}
	}
}
