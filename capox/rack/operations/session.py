"""Operations about the caller: ping, the current user, and the user's SSH keys and tokens (semantics 1.1, 8)."""

from __future__ import annotations

from capox.rack import names, paging, records, select, views
from capox.rack.call import Call, check_description, operation
from capox.rack.json import JSON


@operation
def ping(call: Call) -> JSON:
    """`GET /v1/ping`: open to all."""
    del call
    return {"status": "ok"}


@operation
def current_user_view(call: Call) -> JSON:
    """`GET /v1/me`: who the token belongs to."""
    user, silo = call.actor.user, call.actor.silo
    return {
        "id": user.id,
        "display_name": user.name,
        "fleet_viewer": user.fleet_viewer,
        "silo_admin": user.role == "admin",
        "silo_id": silo.id,
        "silo_name": silo.name,
        "time_created": views.timestamp(user.time_created),
        "time_modified": views.timestamp(user.time_modified),
    }


@operation
def current_user_ssh_key_list(call: Call) -> JSON:
    """`GET /v1/me/ssh-keys`."""
    return call.page(call.rack.ssh_keys, call.actor.user.id, ssh_key_view)


@operation
def current_user_ssh_key_create(call: Call) -> JSON:
    """`POST /v1/me/ssh-keys`."""
    body = call.body
    check_description(body["description"])
    record = records.SshKey(
        **call.rack.identity(body["name"], body["description"]),
        user=call.actor.user.id,
        public_key=body["public_key"],
    )
    return ssh_key_view(call.rack.ssh_keys.insert(record))


@operation
def current_user_ssh_key_view(call: Call) -> JSON:
    """`GET /v1/me/ssh-keys/{ssh_key}`."""
    return ssh_key_view(select.own_ssh_key(call, call.path["ssh_key"]))


@operation
def current_user_ssh_key_delete(call: Call) -> JSON:
    """`DELETE /v1/me/ssh-keys/{ssh_key}`."""
    call.rack.ssh_keys.delete(select.own_ssh_key(call, call.path["ssh_key"]))


@operation
def current_user_access_token_list(call: Call) -> JSON:
    """`GET /v1/me/access-tokens`: those that have not expired; nothing in them tells which one the caller bears."""
    now = call.rack.now()
    valid = (token for token in _own_tokens(call) if token.time_expires is None or token.time_expires > now)
    return paging.page(paging.ordered(valid, call.at, _token_id, _token_id), call.at, token_view, _token_id)


@operation
def current_user_access_token_delete(call: Call) -> JSON:
    """`DELETE /v1/me/access-tokens/{token_id}`: whoever bears it is refused from now on."""
    wanted = names.parse_uuid(call.path["token_id"])
    found = next((token for token in _own_tokens(call) if token.id == wanted), None)
    if found is None:
        raise select.missing("device-access-token", call.path["token_id"])
    del call.rack.tokens[found.sha256]
    return None


def _own_tokens(call: Call) -> list[records.Token]:
    return [token for token in call.rack.tokens.values() if token.user == call.actor.user.id]


def _token_id(token: records.Token) -> str:
    return token.id


def token_view(token: records.Token) -> JSON:
    """Schema `DeviceAccessToken`."""
    expires = token.time_expires
    return {
        "id": token.id,
        "time_created": views.timestamp(token.time_created),
        "time_expires": views.timestamp(expires) if expires is not None else None,
    }


def ssh_key_view(record: records.SshKey) -> JSON:
    """Schema `SshKey`."""
    return views.identity(record) | {"public_key": record.public_key, "silo_user_id": record.user}
