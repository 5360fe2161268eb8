#!/usr/bin/env python3
"""Fuzzes all readers of foreign bytes: fuzz_campaign.py TARGET [MINUTES].

TARGET is cargo's target directory. Each fuzz target runs until 20 minutes of CPU time have passed
since the last new edge, with limits of length and memory; two run at a time. The totals are
written to docs/fuzz.txt after each run, from which a campaign goes on where the last one ended.
Inputs with new edges are merged into fuzz/corpus at the end, after MINUTES, with Ctrl-C or SIGTERM; plain
tests replay them. What a finding needs to be repeated lies in TARGET/fuzz.
"""

import concurrent.futures
import datetime
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOTALS = ROOT / "docs/fuzz.txt"
# CPU seconds past the last new edge after which a target is done, and seconds of one run.
ENOUGH, RUN = 20 * 60, 300
LIMITS = ["-max_len=65536", "-rss_limit_mb=1024", "-malloc_limit_mb=320", "-timeout=20"]
JOBS = 2


def targets():
    text = (ROOT / "fuzz/Cargo.toml").read_text(encoding="utf-8")
    return re.findall(r'\[\[bin\]\]\nname = "([^"]+)"', text)


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def digest_of(binary):
    return hashlib.sha256(pathlib.Path(binary).read_bytes()).hexdigest()


class Target:
    """A fuzz target, and what was reached with it."""

    def __init__(self, name, directory):
        self.name, self.directory = name, directory / name
        (self.directory / "corpus").mkdir(parents=True, exist_ok=True)
        self.reached = {"seconds": 0, "since_new": 0, "edges": 0}
        totals = TOTALS.read_text(encoding="utf-8") if TOTALS.exists() else ""
        if row := re.search(rf"^{name} +([\d.]+) +([\d.]+) +(\d+)", totals, re.MULTILINE):
            self.reached = {"seconds": 60 * float(row[1]), "since_new": 60 * float(row[2]), "edges": int(row[3])}

    def done(self):
        return self.reached["since_new"] >= ENOUGH

    def findings(self):
        kinds = ("crash-", "oom-", "timeout-", "leak-", "slow-unit-")
        return sorted(p.name for p in self.directory.iterdir() if p.name.startswith(kinds))

    def run(self, binary, seconds):
        reached = self.reached
        corpus = [self.directory / "corpus", ROOT / "fuzz/corpus" / self.name]
        command = [binary, *(c for c in corpus if c.is_dir()), *LIMITS, f"-artifact_prefix={self.directory}/"]
        command += [f"-max_total_time={seconds}", f"-seed={int(reached['seconds']) + 1}"]
        child = subprocess.Popen(
            command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        )
        began = time.monotonic()
        # When the known inputs were replayed, and when the last new edge was found. Edges of earlier
        # runs of the same program are not new: some depend on chance, such as hashes, and the inputs
        # that reached them do not do so again.
        ready = last = None
        edges = self.best(binary)
        with open(self.directory / "log", "w", encoding="utf-8") as log:
            for line in child.stdout:
                log.write(line)
                covered = re.search(r"cov: (\d+)", line)
                if ready is None and "INITED" in line:
                    ready = last = time.monotonic()
                elif ready and covered and int(covered[1]) > edges:
                    last = time.monotonic()
                edges = max(edges, int(covered[1]) if covered else 0)
        usage = os.wait4(child.pid, 0)[2]
        ended, took = time.monotonic(), usage.ru_utime + usage.ru_stime
        since_new = reached["since_new"]
        if ready:
            since_new = (0 if last > ready else since_new) + took * (ended - last) / (ended - began)
        self.keep_best(binary, edges)
        reached.update(seconds=reached["seconds"] + took, since_new=since_new, edges=max(edges, reached["edges"]))
        return f"{self.name}: {edges} edges, {reached['since_new'] / 60:.0f} min since the last new one, {len(self.findings())} findings"

    def best(self, binary):
        """Most edges that runs of this very program reached; 0 for another one."""
        try:
            digest, edges = (self.directory / "edges").read_text(encoding="utf-8").split()
        except OSError:
            return 0
        return int(edges) if digest == digest_of(binary) else 0

    def keep_best(self, binary, edges):
        (self.directory / "edges").write_text(f"{digest_of(binary)} {edges}\n", encoding="utf-8")

    def merge(self, binary):
        """Copies few and short inputs with new edges to the corpus that lives with the code."""
        kept = ROOT / "fuzz/corpus" / self.name
        kept.mkdir(exist_ok=True)
        command = [binary, "-set_cover_merge=1", "-use_counters=0", *LIMITS, "-max_len=16384", kept, self.directory / "corpus"]
        subprocess.run(command, check=False, capture_output=True)


def write(all_targets):
    lines = ["Last result of `make fuzz`: CPU minutes of each fuzz target, in all and since its last new edge.", ""]
    lines += [f"date    {datetime.date.today()}", f"commit  {output('git', 'rev-parse', '--short=12', 'HEAD')}"]
    lines += [f"limits  {' '.join(LIMITS)}", "", f"{'target':12} {'minutes':>8} {'since new':>10} {'edges':>8} {'inputs':>8}  findings"]
    for target in all_targets:
        reached = target.reached
        inputs = sum(1 for _ in (target.directory / "corpus").iterdir())
        minutes = (reached["seconds"] / 60, reached["since_new"] / 60)
        found = ", ".join(target.findings()) or "none"
        lines.append(f"{target.name:12} {minutes[0]:8.1f} {minutes[1]:10.1f} {reached['edges']:8} {inputs:8}  {found}")
    open_targets = [t.name for t in all_targets if not t.done()]
    lines += ["", f"not at {ENOUGH // 60} minutes yet: {', '.join(open_targets) or 'none'}"]
    scratch = TOTALS.with_suffix(".new")
    scratch.write_text("\n".join(lines) + "\n", encoding="utf-8")
    scratch.replace(TOTALS)


def main():
    directory = pathlib.Path(sys.argv[1]).resolve() / "fuzz"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    until = time.monotonic() + 60 * float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
    subprocess.run(["cargo", "+nightly", "fuzz", "build"], cwd=ROOT, check=True)
    release = ROOT / "fuzz/target/x86_64-unknown-linux-gnu/release"
    found = [Target(name, directory) for name in targets()]
    left = lambda: int(min(RUN, until - time.monotonic()))
    try:
        while left() > 5 and (waiting := [t for t in found if not t.done()]):
            # The ones that were tried least come first.
            waiting.sort(key=lambda t: t.reached["seconds"])
            with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
                for line in pool.map(lambda t: t.run(release / t.name, left()), waiting[:JOBS]):
                    print(line, flush=True)
            write(found)
    except KeyboardInterrupt:
        pass
    for target in found:
        target.merge(release / target.name)
    write(found)
    print(TOTALS.read_text(encoding="utf-8"), end="")
    sys.exit(1 if any(t.findings() for t in found) else 0)


if __name__ == "__main__":
    main()
