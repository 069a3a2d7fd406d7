"""Deletes in Iceberg tables, which the stock library reads in part and never writes: committed with its own parts."""

import pathlib
import time
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry,
                                ManifestEntryStatus, ManifestWriterV2, write_manifest_list)
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.typedef import Record

PATH_ID, POS_ID = "2147483546", "2147483545"


class DeleteManifest(ManifestWriterV2):
    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return super()._meta | {"content": "deletes"}


def local(location):
    return pathlib.Path(location.removeprefix("file://"))


def positions(folder, name, rows):
    """A file of places: pairs of a data file's address and a row in it."""
    schema = pa.schema([
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": PATH_ID}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": POS_ID})])
    table = pa.table({"file_path": [row[0] for row in rows], "pos": [row[1] for row in rows]}, schema=schema)
    pq.write_table(table, local(folder) / name)
    return table.num_rows


def equals(folder, name, column, number, values, kind):
    """A file of values of one column."""
    schema = pa.schema([pa.field(column, kind, metadata={"PARQUET:field_id": str(number)})])
    pq.write_table(pa.table({column: values}, schema=schema), local(folder) / name)
    return len(values)


def commit(table, files):
    """Adds files of deletes as a new snapshot; tells the path of the new metadata. `files` are names in the folder
    of data, with how many rows they have and the numbers of the columns that are compared, if any."""
    metadata, io = table.metadata, table.io
    location = metadata.location
    sequence, snapshot_id = metadata.last_sequence_number + 1, int(time.time() * 1e6)
    manifest_path = f"{location}/metadata/deletes-{snapshot_id}.avro"
    writer = DeleteManifest(metadata.spec(), metadata.schema(), io.new_output(manifest_path), snapshot_id, "deflate")
    with writer:
        for name, count, ids in files:
            content = DataFileContent.EQUALITY_DELETES if ids else DataFileContent.POSITION_DELETES
            data = DataFile.from_args(
                content=content, file_path=f"{location}/data/{name}", file_format=FileFormat.PARQUET,
                partition=Record(), record_count=count, file_size_in_bytes=1, column_sizes=None, value_counts=None,
                null_value_counts=None, nan_value_counts=None, lower_bounds=None, upper_bounds=None,
                key_metadata=None, split_offsets=None, equality_ids=ids, sort_order_id=None, spec_id=0)
            writer.add_entry(ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, sequence_number=None,
                file_sequence_number=None, data_file=data))
    deletes = writer.to_manifest_file()
    before = table.current_snapshot().manifests(io)
    list_path = f"{location}/metadata/snap-{snapshot_id}.avro"
    with write_manifest_list(format_version=2, output_file=io.new_output(list_path), snapshot_id=snapshot_id,
                             parent_snapshot_id=metadata.current_snapshot_id, sequence_number=sequence,
                             avro_compression="deflate") as writer:
        writer.add_manifests([*before, deletes])
    now = int(time.time() * 1000)
    raw = metadata.model_dump(by_alias=True, mode="json")
    raw["snapshots"].append(Snapshot(
        snapshot_id=snapshot_id, parent_snapshot_id=metadata.current_snapshot_id, sequence_number=sequence,
        timestamp_ms=now, manifest_list=list_path, summary=Summary(Operation.OVERWRITE),
        schema_id=metadata.current_schema_id).model_dump(by_alias=True, mode="json"))
    raw["current-snapshot-id"], raw["last-sequence-number"], raw["last-updated-ms"] = snapshot_id, sequence, now
    raw["refs"]["main"]["snapshot-id"] = snapshot_id
    raw["snapshot-log"].append({"snapshot-id": snapshot_id, "timestamp-ms": now})
    path = f"{location}/metadata/{99000 + sequence:05}-{uuid.uuid4()}.metadata.json"
    made = TableMetadataUtil.parse_obj(raw)
    local(path).write_text(made.model_dump_json(by_alias=True))
    return path
