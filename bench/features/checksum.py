"""A number for each column of answers: python checksum.py FILE.

It depends on every value and on the moment that has it, not on the order of rows. Prints a JSON object
of the number of values and that sum, by column.
"""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

table = pq.read_table(sys.argv[1])
weight = table["row"].to_numpy().astype(np.uint64) * np.uint64(2) + np.uint64(1)
sums = {}
for name in sorted(table.column_names):
    if "__" in name:
        column = table[name].cast(pa.float32())
        there = pc.is_valid(column).to_numpy()
        bits = pc.fill_null(column, 0.0).to_numpy().view(np.uint32).astype(np.uint64)
        sums[name] = [int(there.sum()), str((bits * weight)[there].sum(dtype=np.uint64))]
print(json.dumps({"rows": table.num_rows, "columns": sums}))
