"""What the stock libraries read and do not write: deletion vectors and mapped columns of Delta, deletes of Iceberg."""

import json
import pathlib
import struct
import uuid
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
TYPES = {pa.int64(): "long", pa.float64(): "double", pa.string(): "string", pa.int32(): "integer",
         pa.timestamp("us", "UTC"): "timestamp", pa.float32(): "float", pa.bool_(): "boolean"}


def z85(data):
    text = ""
    for (number,) in struct.iter_unpack(">I", data):
        text += "".join(Z85[number // 85 ** power % 85] for power in (4, 3, 2, 1, 0))
    return text


def rows_gone(rows):
    """A set of rows, as a deletion vector has it: one bucket, one container, an array."""
    rows = sorted(rows)
    bitmap = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, len(rows) - 1) + struct.pack("<I", 16)
    bitmap += b"".join(struct.pack("<H", row) for row in rows)
    return struct.pack("<I", 1681511377) + struct.pack("<QI", 1, 0) + bitmap


def inline(rows):
    data = rows_gone(rows)
    return {"storageType": "i", "pathOrInlineDv": z85(data + b"\0" * (-len(data) % 4)), "sizeInBytes": len(data),
            "cardinality": len(rows)}


def in_file(folder, rows):
    data, name = rows_gone(rows), uuid.uuid4()
    size = struct.pack(">I", len(data))
    (pathlib.Path(folder) / f"deletion_vector_{name}.bin").write_bytes(
        b"\1" + size + data + struct.pack(">I", zlib.crc32(data)))
    return {"storageType": "u", "pathOrInlineDv": z85(name.bytes), "offset": 1, "sizeInBytes": len(data),
            "cardinality": len(rows)}


class Delta:
    """A Delta table whose log is written line by line."""

    def __init__(self, folder, schema, *, features=None, reader=1, mapping=None, partitions=()):
        self.folder, self.version = pathlib.Path(folder), 0
        (self.folder / "_delta_log").mkdir(parents=True)
        fields = []
        for number, field in enumerate(schema, 1):
            about = {}
            if mapping:
                about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": mapping[field.name]}
            fields.append({"name": field.name, "type": TYPES[field.type], "nullable": True, "metadata": about})
        protocol = {"minReaderVersion": reader, "minWriterVersion": 7 if reader == 3 else 5}
        if reader == 3:
            protocol |= {"readerFeatures": features, "writerFeatures": features}
        settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(fields))}
        metadata = {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps({"type": "struct", "fields": fields}),
                    "partitionColumns": list(partitions), "configuration": settings if mapping else {},
                    "createdTime": 0}
        self.commit({"protocol": protocol}, {"metaData": metadata})

    def commit(self, *actions):
        log = self.folder / "_delta_log" / f"{self.version:020}.json"
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        self.version += 1

    def file(self, table, name=None):
        """A file of rows, and the action that adds it."""
        name = name or f"part-{self.version}-{uuid.uuid4()}.parquet"
        pq.write_table(table, self.folder / name)
        return {"path": name, "partitionValues": {}, "size": (self.folder / name).stat().st_size,
                "modificationTime": self.version, "dataChange": True}


def split_checkpoint(folder, version):
    """Makes a checkpoint of one file one of two parts."""
    log = pathlib.Path(folder) / "_delta_log"
    whole = log / f"{version:020}.checkpoint.parquet"
    table = pq.read_table(whole)
    half = table.num_rows // 2
    for part, rows in enumerate([table.slice(0, half), table.slice(half)], 1):
        pq.write_table(rows, log / f"{version:020}.checkpoint.{part:010}.{2:010}.parquet")
    whole.unlink()
    (log / "_last_checkpoint").write_text(json.dumps({"version": version, "size": table.num_rows, "parts": 2}))


def forget_commits(folder, version):
    """Removes the commits up to a checkpoint: only it can tell."""
    for number in range(version + 1):
        (pathlib.Path(folder) / "_delta_log" / f"{number:020}.json").unlink()
