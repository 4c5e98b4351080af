// Go: small objects, strings and large slices on its heap, goroutines, then a wait.
package main

import (
	"fmt"
	"strconv"
	"time"
)

type node struct {
	key  int
	text string
	next *node
}

func main() {
	var list *node
	for i := 0; i < 400000; i++ {
		list = &node{i, "value " + strconv.Itoa(i), list}
	}
	large := make([][]byte, 16)
	for i := range large {
		large[i] = make([]byte, 1<<20)
		for k := range large[i] {
			large[i][k] = byte(k)
		}
	}
	for i := 0; i < 1000; i++ {
		go func() { time.Sleep(10 * time.Minute) }()
	}
	fmt.Println("ready")
	time.Sleep(10 * time.Minute)
	fmt.Println(list.key, len(large))
}
