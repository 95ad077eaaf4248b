"""`fedkge keys`: keys and certificates of peers, of a hub and of its sites, and what people compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedkge.cli.arguments import Json
from fedkge.cli.front import Group
from fedkge.cli.output import command, show

app = typer.Typer(cls=Group, help="Keys of parties that talk over a network.", no_args_is_help=True)


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
    files: Annotated[list[Path], typer.Argument(help="Certificates (.crt), requests (.csr) or kits (.kit).")],
    json: Json = False,
) -> None:
    """Show whose certificates or requests these are, and their fingerprints: compare them by telephone."""
    with command():
        show([_described(path) for path in files], json, "certificates and requests")


def _described(path: Path) -> dict[str, str]:
    from fedkge.runtimes.keys import Certificate
    from fedkge.runtimes.kits import Kit
    from fedkge.runtimes.signing import asked_for, request_fingerprint

    if path.suffix == ".csr":
        request = read_file(path)
        return _row(path, asked_for(request)[0], request_fingerprint(request), "asks to be approved")
    one = Certificate.of(Kit.read(path).certificate) if path.suffix == ".kit" else Certificate.read(path)
    return _row(path, one.name, one.fingerprint, one.until)


def _row(path: Path, name: str, fingerprint: str, until: str) -> dict[str, str]:
    return {"file": str(path), "name": name, "fingerprint": fingerprint, "good until": until}


def read_file(path: Path) -> bytes:
    """A file that the user has named."""
    from fedkge.errors import DataError

    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None


@app.command()
def authority(
    host: Annotated[str, typer.Argument(help="The hub's full host name, as sites call it.")],
    out: Annotated[Path, typer.Option(help="Folder for the authority; its key signs everybody.")] = Path(
        "authority"
    ),
    port: Annotated[int, typer.Option(help="The hub's port, the only one that sites connect to.")] = 8002,
    also: Annotated[list[str], typer.Option(help="Another name or address of the hub; repeatable.")] = [],  # noqa: B006
    renew: Annotated[
        bool, typer.Option("--renew", help="New certificates of the hub; sites keep theirs.")
    ] = False,
    json: Json = False,
) -> None:
    """At the hub: make the authority that approves sites, and the hub's own keys."""
    with command():
        from fedkge.runtimes.authority import Authority
        from fedkge.runtimes.keys import Certificate
        from fedkge.runtimes.kits import ROOT, Address

        if renew:
            Authority(out).renew()
        else:
            Authority.create(out, Address(host, port), also)
        rows = [(path, Certificate.read(path)) for path in (out / ROOT, out / "hub.crt", out / "admin.crt")]
        show(
            [_row(path, one.name, one.fingerprint, one.until) for path, one in rows], json, f"authority {out}"
        )


@app.command()
def request(
    name: Annotated[str, typer.Argument(help="The site's name, as the hub calls it.")],
    organisation: Annotated[str, typer.Option(help="Whose site it is.")] = "",
    out: Annotated[Path, typer.Option(help="Folder for NAME.key, which stays, and NAME.csr.")] = Path(),
    renew: Annotated[
        bool, typer.Option("--renew", help="Ask for a new certificate with the same key.")
    ] = False,
    json: Json = False,
) -> None:
    """At a site: make a private key, which never leaves, and a request for the hub."""
    with command():
        from fedkge.runtimes.signing import make_request

        key, path = make_request(name, organisation, out, renew)
        show([{"key": str(key), **_described(path)}], json, f"send {path.name} to the hub, and nothing else")


@app.command()
def approve(
    authority: Annotated[Path, typer.Argument(help="The folder that `fedkge keys authority` made.")],
    request: Annotated[Path, typer.Argument(help="A site's NAME.csr.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME.kit.")] = Path(),
    days: Annotated[int, typer.Option(help="Days that the certificate is good for.")] = 365,
    json: Json = False,
) -> None:
    """At the hub: sign a request whose fingerprint you have compared, and write the site's kit."""
    with command():
        from fedkge.nodes.store import write_whole
        from fedkge.runtimes.authority import Authority

        kit = Authority(authority).approve(read_file(request), days)
        path = out / f"{kit.name}.kit"
        write_whole(path, kit.packed())
        show([_described(path)], json, f"send {path.name} to the site")


@app.command()
def revoke(
    authority: Annotated[Path, typer.Argument(help="The folder that `fedkge keys authority` made.")],
    who: Annotated[str, typer.Argument(help="A site, or the fingerprint of one of its certificates.")],
    json: Json = False,
) -> None:
    """At the hub: trust a site, or one certificate, no more. A running hub cuts it off at once."""
    with command():
        from fedkge.runtimes.authority import Authority

        new = Authority(authority).revoke(who)
        show([{"revoked": one} for one in new], json, f"Certificates that are no longer trusted: {len(new)}")
