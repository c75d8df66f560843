"""The command that checks everything."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict

from vedur.cli.grammar import Call
from vedur.cli.output import print_json, wants_colour
from vedur.config import LondisteSettings
from vedur.ops.doctor.run import Verdict
from vedur.ops.doctor.run import doctor as ops_doctor

_COLOURS = {Verdict.OK: "\x1b[32m", Verdict.WARN: "\x1b[33m", Verdict.FAIL: "\x1b[31m"}


def doctor(call: Call, settings: LondisteSettings) -> int:
    findings = []
    colour = wants_colour(sys.stdout, os.environ)
    for finding in ops_doctor(settings):
        findings.append(finding)
        if call.options.json:
            continue
        word = f"{finding.verdict:<5}"
        if colour:
            word = f"{_COLOURS[finding.verdict]}{word}\x1b[0m"
        print(f"{word} {finding.check:<12} {finding.found}", flush=True)
        if finding.remedy:
            print(f"{'':18} {finding.remedy}", flush=True)
    if call.options.json:
        print_json([asdict(finding) for finding in findings])
    return int(any(finding.verdict is Verdict.FAIL for finding in findings))
