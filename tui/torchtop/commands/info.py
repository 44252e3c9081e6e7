"""``workloads`` and ``doctor``: what can be run, and what this machine has for it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from torchtop.commands.errors import here
from torchtop.commands.text import one_line, safe


def workloads(args: argparse.Namespace) -> int:
    """List the catalog, or one workload's options."""
    from torchtop.launch.catalog import load_catalog

    catalog = load_catalog(here())
    if args.json:
        chosen = (catalog.find(args.workload),) if args.workload else catalog.entries
        print(json.dumps(replace(catalog, entries=chosen).as_json(), indent=1))
        return 0
    for problem in catalog.problems:
        print(f"torchtop: {one_line(problem)}", file=sys.stderr)
    if args.workload:
        entry = catalog.find(args.workload)
        print(f"{entry.name}: {safe(entry.summary)}")
        for option in entry.options:
            default = option.default_text()
            told = f" ({' or '.join(option.choices)})" if option.choices else ""
            told += f" (default {default})" if default else ""
            print(f"  -o {option.name}=...  {safe(option.help)}{safe(told)}")
        return 0
    width = max(len(entry.name) for entry in catalog.entries)
    for entry in catalog.entries:
        print(f"{entry.key or ' '}  {entry.name.ljust(width)}  {safe(entry.summary)}")
    print("\noptions of one: torchtop workloads NAME; start it: torchtop run NAME -o key=value")
    return 0


def doctor(args: argparse.Namespace) -> int:
    """Say what is there and what is missing; status 1 where training cannot work."""
    from torchtop.launch import doctor as doctor_

    findings = doctor_.examine(args.python)
    if args.json:
        answer = doctor_.to_json(findings)
        print(answer if isinstance(answer, str) else json.dumps(answer, indent=1))
    else:
        print(doctor_.render(findings))
    return 1 if doctor_.worst(findings) == "fail" else 0
