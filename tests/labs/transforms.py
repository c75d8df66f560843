"""Functions that tests give to `--transform`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Change nothing."""
    return batch


def shout(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Write v in capitals, add its length, leave secret rows and column `private` out."""
    kept = batch.filter(pc.not_equal(pc.fill_null(batch["v"], ""), "secret"))
    upper = pc.utf8_upper(kept["v"])
    names = [name for name in kept.schema.names if name not in ("v", "private")]
    columns = [kept[name] for name in names]
    return pa.RecordBatch.from_arrays(
        [*columns, upper, pc.utf8_length(upper)], [*names, "v", "size"]
    )


def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Fail with a message that quotes a value."""
    raise ValueError(f"cannot take {batch['v'].to_pylist()}")


def another_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Change the key without saying so."""
    at = batch.schema.get_field_index("id")
    return batch.set_column(at, "id", pc.binary_join_element_wise("1", batch["id"], ""))


def frame(df: DataFrame) -> Any:  # type: ignore[name-defined]  # noqa: F821
    """Take what only the driver of Spark has."""
    return df


def tell_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add what the moments look like."""
    told = [f"{name}_text" for name in ("at", "day")]
    columns = [batch.column(name) for name in batch.schema.names]
    more = [batch["at"], batch["day"]] if "at" in batch.schema.names else []
    names = [*batch.schema.names, *told] if more else batch.schema.names
    return pa.RecordBatch.from_arrays([*columns, *more], names)


tell_text.rewrites = ()  # type: ignore[attr-defined]
