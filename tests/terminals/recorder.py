"""A raw-mode program that appends every byte it reads to a file: what a terminal was really sent.

    python -I -S recorder.py FILE [--bracketed]

`--bracketed` announces bracketed paste. FILE exists, and the screen says `recording`, once it reads. It ends
only when its terminal does: every byte is recorded, an interrupt key too.
"""

import os
import sys
import termios


def main() -> None:
    path, *switches = sys.argv[1:]
    mode = termios.tcgetattr(0)
    mode[0] = mode[3] = 0
    mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
    termios.tcsetattr(0, termios.TCSANOW, mode)
    if "--bracketed" in switches:
        os.write(1, b"\x1b[?2004h")
    record = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(1, b"recording\r\n")
    while data := os.read(0, 65536):
        os.write(record, data)


if __name__ == "__main__":
    main()
