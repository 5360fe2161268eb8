#!/usr/bin/env python3
"""Resources of the telemetry circuit by yosys, target cyclone10gx: ALUTs, registers, M20K.

    resources.py OUT.json [NAME...]    measures the named parts that OUT.json lacks; by default all

Parts are lanes with other parameters, controllers around their lanes, and single SRAMs. A module is
synthesised once (-noflatten), so that a controller's sum is its own parts and its lanes'. An ALM
holds one function of six inputs or two smaller ones: by ALUTs alone, ALMs are between two bounds.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

RTL = os.path.dirname(os.path.abspath(__file__))
SYNTH = "synth_intel_alm -family cyclone10gx -noflatten -noiopad -noclkbuf"
BLOCKS = "/intel_alm/common/bram_m20k"
LANES = {
    "lane": {},
    "lane, entries of 14 bits": {"BASE_BITS": 13},
    "lane, time of 32 bits": {"TIME_BITS": 32},
    "lane without hash": {"HASH": 0},
    "lane without chain": {"CHAIN": 0},
    "lane, half a line a cycle": {"COLUMNS_BITS": 2},
    "lane, a word a cycle": {"COLUMNS_BITS": 0},
    "lane of the prototype": {"BASE_BITS": 13, "HASH": 0, "CHAIN": 0, "COLUMNS_BITS": 2},
}
CONTROLLERS = [1, 2, 4, 8]
# Words and width: tables of entries with 13 or 16 bits of base, and states in columns.
SRAMS = [(11, 14), (12, 14), (13, 14), (14, 14), (15, 14), (13, 17), (13, 20), (13, 21)]
SRAMS += [(13, 8), (13, 16), (13, 32), (13, 64), (12, 64), (14, 64), (11, 64), (10, 64)]


def yosys(script):
    """Runs a script; what it printed."""
    with tempfile.NamedTemporaryFile("w", suffix=".ys") as file:
        file.write(script)
        file.flush()
        command = ["yosys", file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def counts(printed):
    """Cells of the last statistics, by type."""
    last = printed[printed.rindex("Number of cells:"):].splitlines()[1:]
    found = {}
    for line in last:
        match = re.match(r"\s+(\S+)\s+(\d+)$", line)
        if not match:
            break
        found[match[1]] = int(match[2])
    return found


def summary(cells):
    """The figures of a netlist."""
    def of(*names):
        return sum(cells.get(name, 0) for name in names)

    six = of("MISTRAL_ALUT6")
    fewer = of(*(f"MISTRAL_ALUT{n}" for n in range(2, 6)), "MISTRAL_NOT")
    arithmetic = of("MISTRAL_ALUT_ARITH")
    # 32 x 1 bits; an ALM of memory holds 32 x 2.
    memory = -(-of("MISTRAL_MLAB") // 2)
    aluts = six + fewer + arithmetic
    return {
        "aluts": aluts,
        "alms_least": six + -(-(fewer + arithmetic) // 2) + memory,
        "alms_most": aluts + memory,
        "registers": of("MISTRAL_FF"),
        "memory_alms": memory,
        "m20k": of("altsyncram", "MISTRAL_M20K"),
        "multipliers": of("MISTRAL_MUL27X27", "MISTRAL_MUL18X18", "MISTRAL_MUL9X9"),
    }


def read(top, parameters):
    """Commands that read the circuit with these parameters of its top."""
    sets = "".join(f"chparam -set {name} {value} {top}\n" for name, value in parameters.items())
    return f"read_verilog {RTL}/*.v\n{sets}"


def synth(top, parameters, rules, before=""):
    """The netlist of a module, with block RAM by the given rules."""
    return counts(yosys(f"""{read(top, parameters)}{before}
        {SYNTH} -top {top} -run begin:map_bram
        memory_bram -rules {rules}
        techmap -map +{BLOCKS}_map.v
        {SYNTH} -top {top} -run map_lutram:
        stat -top {top}"""))


def memory_bits(pipelines):
    """Bits of SRAM in a controller with entries of 14 bits, before anything is mapped, by use."""
    top = "nemo_controller"
    parameters = {"PIPELINES": pipelines, "BASE_BITS": 13}
    printed = yosys(f"{read(top, parameters)}hierarchy -top {top}\nproc\nstat -top {top}")
    each, module = {}, ""
    for line in printed.splitlines():
        if named := re.match(r"=== (\S+) ===", line):
            module = named[1]
        if found := re.match(r"\s+Number of memory bits:\s+(\d+)", line):
            each[module] = int(found[1])
    bits = {"table": 0, "states": 0, "capture": 0, "queue": 0}
    # The tree of instances: indent, module, number in its parent.
    path = []
    for line in printed[printed.index("=== design hierarchy ==="):].splitlines():
        found = re.match(r"(\s+)(\S*(nemo_\w+)\S*)\s+(\d+)$", line)
        if not found:
            continue
        depth, module = len(found[1]), found[2]
        path = [entry for entry in path if entry[0] < depth]
        names = [entry[1] for entry in path] + [found[3]]
        count = (path[-1][2] if path else 1) * int(found[4])
        path.append((depth, names[-1], count))
        if not each.get(module):
            continue
        if names[-1] == "nemo_queue":
            use = "queue"
        elif names[-1] != "nemo_sram":
            continue  # arrays of wires
        elif "nemo_states" not in names:
            use = "table"
        else:
            use = "states" if "nemo_lane" in names else "capture"
        bits[use] += each[module] * count
    return bits


def parts():
    """All measurements: name and function."""
    ours = f"{RTL}/m20k.txt"
    for name, parameters in LANES.items():
        yield name, lambda p=parameters: summary(synth("nemo_lane", p, ours))
    for pipelines in CONTROLLERS:
        yield f"controller of {pipelines} without lanes", lambda n=pipelines: summary(
            synth("nemo_controller", {"PIPELINES": n}, ours, "blackbox nemo_lane"))
        yield f"memory bits of {pipelines}", lambda n=pipelines: memory_bits(n)
    for log, width in SRAMS:
        sizes = {"ADDRESS_BITS": log, "WIDTH": width}
        for rules, by in [(ours, "shapes of the device"), (f"+{BLOCKS}.txt", "rules of the tool")]:
            yield f"SRAM {1 << log} x {width}, {by}", lambda s=sizes, r=rules: {
                "m20k": summary(synth("nemo_sram", s, r))["m20k"]}


def main():
    out, *names = sys.argv[1:]
    done = {}
    if os.path.exists(out):
        with open(out, encoding="utf-8") as file:
            done = json.load(file)
    for name, measure in parts():
        if name in done or (names and name not in names):
            continue
        done[name] = measure()
        with open(out + ".new", "w", encoding="utf-8") as file:
            json.dump(done, file, indent=1)
        os.replace(out + ".new", out)
        print(name, done[name], flush=True)


if __name__ == "__main__":
    main()
