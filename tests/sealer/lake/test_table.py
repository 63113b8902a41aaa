"""The columns of a table."""

import pyarrow as pa

from smq.sealer.lake.table import TableName, columns_of
from smq.sealer.parquet import SCHEMA


def test_a_table_has_the_files_columns_and_the_partition() -> None:
    typed = pa.schema([pa.field("price", pa.float64())])
    assert columns_of(None).names == ["partition", *SCHEMA.names]
    assert columns_of(typed).names == ["partition", *SCHEMA.names, "price"]


def test_a_name_reads_as_in_sql() -> None:
    assert str(TableName("kafka", "orders")) == "kafka.orders"
