"""CPython: dicts, small objects and a few large blocks, then a wait."""
import sys, threading, time
kept = [{"key": i, "text": str(i) * 3, "list": [i] * 4} for i in range(int(sys.argv[1]) if sys.argv[1:] else 150000)]
large = [bytearray(1 << 20) for _ in range(8)]
threads = [threading.Thread(target=time.sleep, args=(600,), daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
print("ready", flush=True)
time.sleep(600)
