// A service with a planted leak, in Go. Usage: service heap leak|steady
package main

import (
	"os"
	"time"
)

func main() {
	var kept [][]byte
	for number := 0; ; number++ {
		block := make([]byte, 12000)
		for i := range block {
			block[i] = byte(number)
		}
		kept = append(kept, block)
		if os.Args[2] == "steady" && len(kept) > 500 {
			kept = kept[1:]
		}
		time.Sleep(20 * time.Millisecond)
	}
}
