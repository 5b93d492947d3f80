"""What runs in `solera train pfedrec --data ml-100k --rounds 2`: functions, files, and builds of the method.

    python tools/trip.py                      of this tree
    python tools/trip.py --src OTHER/src      of another version
    python tools/trip.py --files              with the functions of every file

Counted are named functions of the package, in all threads, but not what runs while a file is imported.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

TRACED = """
import json, sys, threading
from pathlib import Path
import solera
root, seen = str(Path(solera.__file__).parent), {}
def trace(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and code.co_name[0] != "<" and code.co_flags & 1:
        at = code.co_filename[len(root) + 1 :], code.co_firstlineno, code.co_qualname
        if at in seen or not imported(frame):
            seen[at] = seen.get(at, 0) + 1
def imported(frame):
    while frame := frame.f_back:
        if "importlib" in frame.f_code.co_filename:
            return True
threading.setprofile(trace)
sys.setprofile(trace)
from solera.cli import main
sys.argv = ["solera", *sys.argv[2:]]
try:
    main()
finally:
    sys.setprofile(None)
    Path(OUT).write_text(json.dumps([[*at, times] for at, times in seen.items()]))
"""
COMMAND = ("train", "pfedrec", "--data", "ml-100k", "--rounds", "2")


def trip(src: Path) -> list[tuple[str, int, str, int]]:
    """Every function that ran: its file, line, name, and how often it was called."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seen.json"
        code = TRACED.replace("OUT", repr(str(out)))
        run = [sys.executable, "-c", code, "-", *COMMAND, "--out", f"{folder}/run"]
        done = subprocess.run(
            run, env=os.environ | {"PYTHONPATH": str(src)}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        return [tuple(each) for each in json.loads(out.read_text())]


def main() -> None:
    """Print the figures, and with --files those of every file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--src", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--files", action="store_true", help="list the functions of every file")
    args = parser.parse_args()
    found = [each for each in trip(args.src.resolve()) if each[2] != "<module>"]
    builds = sum(times for _, _, name, times in found if name == "Method.__post_init__")
    per_file = Counter(file for file, *_ in found)
    print(f"{len(found)} functions in {len(per_file)} files; a method is checked {builds} times")
    if args.files:
        for file in sorted(per_file):
            print(f"{per_file[file]:4} {file}")
            for _, _, name, times in sorted(each for each in found if each[0] == file):
                print(f"         {name} {times}")


if __name__ == "__main__":
    main()
