"""What NVIDIA FLARE reads: the workspace of the hub's server, of its administrator and of a site, and a job.

Users never see these files. They are written anew into the run's folder whenever FLARE is started. No code
travels: a job names the two ends of `fedkge.runtimes.flare`, which both parties have installed. A site's own
workspace allows these two classes, no code of a job's own, and no command besides a job's start and end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedkge.runtimes.authority import Authority
from fedkge.runtimes.engine import ADMIN
from fedkge.runtimes.kits import ROOT, Address, Kit

PROJECT = "fedkge"
ENDS = "fedkge.runtimes.flare"
ALLOWED = [f"{ENDS}.HubEnd", f"{ENDS}.SiteEnd", "nvflare.collab.runtime"]  #: classes that a job may name
RIGHTS = (
    "submit_job",
    "clone_job",
    "manage_job",
    "download_job",
    "view",
    "operate",
    "shell_commands",
    "byoc",
)
GRANTED = ("submit_job", "manage_job")  #: what a site lets the hub's administrator do with it
LOG = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(name)s %(levelname)s %(message)s"}},
    "handlers": {
        "file": {
            "class": "logging.handlers.RotatingFileHandler",
            "formatter": "plain",
            "filename": "log.txt",
            "maxBytes": 5_000_000,
            "backupCount": 2,
        }
    },
    "root": {"level": "WARNING", "handlers": ["file"]},
}


def write_server(workspace: Path, authority: Authority, sites: int) -> None:
    """The hub's server. What it stores lies below the workspace."""
    workspace, address = workspace.resolve(), authority.address
    server = {
        "name": PROJECT,
        "service": {"target": _target(replace(address, host=_bound(address.host))), "scheme": "grpc"},
        "admin_server": address.host,
        "admin_port": address.port,
        "ssl_private_key": "server.key",
        "ssl_cert": "server.crt",
        "ssl_root_cert": "rootCA.pem",
        "connection_security": "mtls",
    }
    common = "nvflare.app_common"
    storage = f"{common}.storages.filesystem_storage.FilesystemStorage"
    persistor = {
        "path": f"{common}.state_persistors.storage_state_persistor.StorageStatePersistor",
        "args": {
            "uri_root": "/",
            "storage": {
                "path": storage,
                "args": {"root_dir": str(workspace / "snapshots"), "uri_root": "/"},
            },
        },
    }
    components: dict[str, tuple[str, dict[str, Any]]] = {
        "job_scheduler": (
            f"{common}.job_schedulers.job_scheduler.DefaultJobScheduler",
            {"max_jobs": 2 * sites + 2, "min_schedule_interval": 1.0, "max_schedule_interval": 5.0},
        ),
        "job_manager": (
            "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
            {"uri_root": str(workspace / "jobs"), "job_store_id": "job_store"},
        ),
        "job_store": (storage, {}),
        "process_launcher": (f"{common}.job_launcher.server_process_launcher.ServerProcessJobLauncher", {}),
    }
    limits = {
        "admin_storage": "transfer",
        "max_num_clients": 10_000,
        "heart_beat_timeout": 30,
        "admin_timeout": 10.0,
    }
    _write(
        workspace,
        {"startup/fed_server.json": {"format_version": 2, "servers": [server]}},
        {"servers": [limits], "snapshot_persistor": persistor, "components": _listed(components)},
        {"project_admin": "any"},
        {
            "server.key": authority.file("hub.key"),
            "server.crt": authority.file("hub.crt"),
            "rootCA.pem": authority.file(ROOT),
        },
    )


def write_site(workspace: Path, kit: Kit, key: bytes) -> None:
    """A site."""
    server = {
        "name": PROJECT,
        "service": {"target": _target(kit.address), "scheme": "grpc"},
        "identity": kit.address.host,
    }
    client = {
        "ssl_private_key": "client.key",
        "ssl_cert": "client.crt",
        "ssl_root_cert": "rootCA.pem",
        "fqsn": kit.name,
        "is_leaf": True,
        "connection_security": "mtls",
    }
    common = "nvflare.app_common"
    components: dict[str, tuple[str, dict[str, Any]]] = {
        "resource_manager": (
            f"{common}.resource_managers.passthrough_resource_manager.PassthroughResourceManager",
            {},
        ),
        "resource_consumer": (
            f"{common}.resource_consumers.passthrough_resource_consumer.PassthroughResourceConsumer",
            {},
        ),
        "process_launcher": (f"{common}.job_launcher.client_process_launcher.ClientProcessJobLauncher", {}),
    }
    _write(
        workspace,
        {"startup/fed_client.json": {"format_version": 2, "servers": [server], "client": client}},
        {
            "allow_log_streaming": False,
            "client": {"retry_timeout": 30, "compression": "Gzip"},
            "components": _listed(components),
        },
        {"project_admin": {right: "any" if right in GRANTED else "none" for right in RIGHTS}},
        {"client.key": key, "client.crt": kit.certificate, "rootCA.pem": kit.root},
    )


def write_admin(workspace: Path, authority: Authority) -> None:
    """Who submits jobs: the hub itself, on the same machine."""
    workspace, address = workspace.resolve(), authority.address
    admin = {
        "project_name": PROJECT,
        "username": ADMIN,
        "server_identity": address.host,
        "scheme": "grpc",
        "host": address.host,
        "port": address.port,
        "connection_security": "mtls",
        "uid_source": "cert",
        "with_file_transfer": True,
        "upload_dir": str(workspace / "transfer"),
        "download_dir": str(workspace / "transfer"),
        "client_key": "client.key",
        "client_cert": "client.crt",
        "ca_cert": "rootCA.pem",
    }
    _write(
        workspace,
        {"startup/fed_admin.json": {"format_version": 1, "admin": admin}},
        {"admin": {"idle_timeout": 86400.0, "login_timeout": 10.0, "with_debug": False, "prompt": "> "}},
        None,
        {
            "client.key": authority.file("admin.key"),
            "client.crt": authority.file("admin.crt"),
            "rootCA.pem": authority.file(ROOT),
        },
    )


def write_job(folder: Path, site: str) -> Path:
    """A job: the two ends of the stream to one site."""
    job = folder / f"to-{site}"
    runtime = "nvflare.collab.runtime"
    server = {
        "format_version": 2,
        "workflows": [
            {
                "id": "controller",
                "path": f"{runtime}.controller.CollabController",
                "args": {"server_obj_id": "end", "collab_obj_ids": [], "props": {}, "max_call_threads": 4},
            }
        ],
        "components": [{"id": "end", "path": f"{ENDS}.HubEnd", "args": {}}],
    }
    client = {
        "format_version": 2,
        "executors": [
            {
                "tasks": ["*"],
                "executor": {
                    "path": f"{runtime}.executor.CollabExecutor",
                    "args": {
                        "client_obj_id": "end",
                        "collab_obj_ids": [],
                        "props": {},
                        "max_call_threads": 4,
                    },
                },
            }
        ],
        "components": [{"id": "end", "path": f"{ENDS}.SiteEnd", "args": {}}],
    }
    meta = {
        "name": f"to-{site}",
        "resource_spec": {},
        "min_clients": 1,
        "mandatory_clients": [site],
        "deploy_map": {"app": ["server", site]},
    }
    _json(job / "meta.json", meta)
    _json(job / "app" / "config" / "config_fed_server.json", server)
    _json(job / "app" / "config" / "config_fed_client.json", client)
    return job


def _bound(host: str) -> str:
    """What the hub listens on: its own machine only, or all of its addresses."""
    return host if host in ("localhost", "127.0.0.1") else "0.0.0.0"


def _target(address: Address) -> str:
    return f"{address.host}:{address.port}"


def _listed(components: Mapping[str, tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [{"id": id, "path": path, "args": dict(args)} for id, (path, args) in components.items()]


def _write(
    workspace: Path,
    startup: Mapping[str, Any],
    resources: Mapping[str, Any],
    permissions: Mapping[str, Any] | None,
    secrets: Mapping[str, bytes],
) -> None:
    """A workspace that only its owner may read."""
    for folder in ("startup", "local", "transfer"):
        (workspace / folder).mkdir(parents=True, exist_ok=True)
    workspace.chmod(0o700)
    for name, content in startup.items():
        _json(workspace / name, content)
    policy = {"class_list_enforcement_mode": "enforce", "class_allow_list": ALLOWED}
    _json(workspace / "local" / "resources.json", {"format_version": 2, **policy, **resources})
    _json(workspace / "local" / "log_config.json", LOG)
    if permissions is not None:
        _json(
            workspace / "local" / "authorization.json", {"format_version": "1.0", "permissions": permissions}
        )
    for name, content in secrets.items():
        handle = os.open(workspace / "startup" / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)


def _json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
