"""Sends one frame again and again, on an interface of the namespace that it runs in: `flood.py INTERFACE RATE FRAME`.

The last four bytes of the frame count. RATE is frames a second; 0 is as many as possible.
"""

import socket
import sys
import time


def main():
    interface, rate, frame = sys.argv[1], float(sys.argv[2]), bytearray.fromhex(sys.argv[3])
    sending = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sending.bind((interface, 0))
    count, begin = 0, time.monotonic()
    while True:
        count += 1
        frame[-4:] = count.to_bytes(4, "big")
        try:
            sending.send(frame)
        except OSError:
            time.sleep(0.001)  # The interface's queue is full.
        if rate:
            time.sleep(max(0.0, begin + count / rate - time.monotonic()))


if __name__ == "__main__":
    main()
