"""What training takes of the machine, and gives back."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

MEGABYTES = """
import re, torch
from solera.core.threads import keep_freed_memory, memory_given_back

def resident():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmRSS:\\s+(\\d+)", status.read())[1]) // 1024

def use():
    parts = [torch.ones(16 << 18) for _ in range(20)]  # 16 MB each
    return resident()

start = resident()
with memory_given_back():
    keep_freed_memory()
    used = use()
    kept = resident()
print(used - start, kept - start, resident() - start)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_is_kept_while_training_and_given_back_after_it():
    done = subprocess.run([sys.executable, "-c", MEGABYTES], capture_output=True, text=True, check=True)
    used, kept, left = map(int, done.stdout.split())
    assert used > 300
    assert kept > 300
    assert left < 50
