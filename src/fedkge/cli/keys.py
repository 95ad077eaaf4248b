"""`fedkge keys`: a party's key and certificate, and what partners compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedkge.cli.arguments import Json
from fedkge.cli.output import command, show

app = typer.Typer(help="Keys of parties that talk over a network.", no_args_is_help=True)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The party's name, as its partners call it.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME.key and NAME.crt.")] = Path(),
    json: Json = False,
) -> None:
    """Make a private key, which stays where it is, and a certificate, which partners get."""
    with command():
        from fedkge.runtimes.keys import Certificate, new_keys

        files = new_keys(name, out)
        certificate = Certificate.read(files.certificate)
        row = {"key": str(files.key), "certificate": str(files.certificate)}
        show([row | {"fingerprint": certificate.fingerprint}], json, f"keys of {name}")


@app.command("show")
def show_(
    certificates: Annotated[list[Path], typer.Argument(help="Certificates: files that end in .crt.")],
    json: Json = False,
) -> None:
    """Show whose certificates these are, and their fingerprints: compare them by telephone."""
    with command():
        from fedkge.runtimes.keys import Certificate

        found = [(path, Certificate.read(path)) for path in certificates]
        rows = [{"file": str(path), "name": one.name, "fingerprint": one.fingerprint} for path, one in found]
        show(rows, json, "certificates")
