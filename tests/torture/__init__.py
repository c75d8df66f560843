"""The campaign: faults under load, and after each the proof that nothing was lost or doubled.

python -m tests.torture --cycles 100 --seed 7
python -m tests.torture.report        # docs/reliability.md from what has been recorded
"""

from __future__ import annotations
