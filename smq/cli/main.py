"""`smq`: the command line.

Each verb is a module with deferred imports: `smq --help` imports neither NumPy nor Numba nor
PyArrow. A refusal is a sentence on stderr and exit code 1; wrong usage is 2.
"""

from importlib.metadata import version
from typing import Annotated

import typer

from smq.cli import (
    bench as cli_bench,
    config as cli_config,
    doctor as cli_doctor,
    payloads as cli_payloads,
    serve as cli_serve,
    snapshot as cli_snapshot,
    spark as cli_spark,
    sql as cli_sql,
    status as cli_status,
    tables as cli_tables,
    topics as cli_topics,
)
from smq.cli.group import verbs as cli_groups
from smq.cli.records import (
    consume as cli_consume,
    copy as cli_copy,
    export as cli_export,
    import_files as cli_import,
    produce as cli_produce,
)

app = typer.Typer(
    name="smq",
    help="A message queue for one host that speaks Kafka's protocol.",
    epilog="Brokers, and verbs that need a broker's host, run on Linux. Other verbs reach a broker "
    "by --bootstrap from any system.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("serve")(cli_serve.serve)
app.command("status", epilog=cli_status.JSON)(cli_status.status)
app.command("doctor", epilog=cli_doctor.JSON)(cli_doctor.doctor)
app.add_typer(cli_topics.app, name="topic")
app.add_typer(cli_groups.app, name="group")
app.add_typer(cli_config.app, name="config")
app.add_typer(cli_payloads.app, name="payload")
app.command("produce", epilog=cli_produce.JSON)(cli_produce.produce)
app.command("consume", epilog=cli_consume.JSON)(cli_consume.consume)
app.command("copy", epilog=cli_copy.JSON)(cli_copy.copy)
app.command("export", epilog=cli_export.JSON)(cli_export.export)
app.command("import", epilog=cli_import.JSON)(cli_import.import_files)
app.command("snapshot", epilog=cli_snapshot.JSON)(cli_snapshot.snapshot)
app.command("restore", epilog=cli_snapshot.JSON)(cli_snapshot.restore)
app.command("sql")(cli_sql.sql)
app.add_typer(cli_tables.app, name="tables")
app.add_typer(cli_bench.app, name="bench")
app.command("spark", context_settings=cli_spark.PASS_THROUGH)(cli_spark.spark)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"smq {version('smq-broker')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The command `smq`."""
    if not __debug__:
        raise SystemExit("smq: assertions are required; run without python's -O and PYTHONOPTIMIZE")
    app()


if __name__ == "__main__":
    main()
