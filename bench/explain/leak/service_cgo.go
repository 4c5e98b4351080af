// A service with a planted leak on Go's heap, in a program that also calls C. Usage: service heap leak|steady
package main

/*
#include <stdlib.h>
#include <string.h>
static int work(int number) {
    char *text = malloc(256);
    memset(text, number, 255);
    int sum = text[number % 255];
    free(text);
    return sum;
}
*/
import "C"

import (
	"os"
	"time"
)

func main() {
	var kept [][]byte
	for number := 0; ; number++ {
		block := make([]byte, 12000)
		for i := range block {
			block[i] = byte(i)
			if i%100 == 0 {
				block[i] = byte(C.work(C.int(number)))
			}
		}
		kept = append(kept, block)
		if os.Args[2] == "steady" && len(kept) > 500 {
			kept = kept[1:]
		}
		time.Sleep(20 * time.Millisecond)
	}
}
