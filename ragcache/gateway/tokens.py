"""Signed tokens (JWT, RFC 7519) as credentials, verified with the keys of a JWKS file.

As RFC 8725 asks: the algorithms are the operator's choice and never the token's, all of them are
asymmetric, and expiry, issuer and audience are required.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigError
from .credentials import Caller
from .faults import Fault, unauthenticated

if TYPE_CHECKING:
    from jwt import PyJWK

#: Signatures that only the issuer can make. With HMAC whoever verifies could sign as well.
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_LEEWAY_S: Final = 10
_NAME_CHARS_MAX: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Which claims of a token say who asks."""

    tenant: str = "tenant"
    principal: str = "sub"
    access: str = "access"


class SignedTokens:
    """Tokens of one issuer for one audience.

    Args:
        jwks_file: The issuer's public keys (RFC 7517).
        issuer: What `iss` must be.
        audience: What `aud` must be, or hold.
        algorithms: The signatures that are taken.
        claims: Which claims say who asks.

    Raises:
        ConfigError: The file, or a setting, is not usable.
    """

    def __init__(
        self,
        jwks_file: Path,
        *,
        issuer: str,
        audience: str,
        algorithms: Sequence[str],
        claims: Claims | None = None,
    ) -> None:
        _refuse_unsafe(issuer, audience, algorithms)
        self._keys = read_jwks(jwks_file)
        self._issuer = issuer
        self._audience = audience
        self._algorithms = tuple(algorithms)
        self._claims = claims or Claims()

    def caller(self, token: str) -> Caller | None:
        """Return who holds this token, None for one that is no signed token.

        Raises:
            Fault: 401 for a token that is not valid, 403 for one that names no tenant.
        """
        if token.count(".") != 2:
            return None
        return _caller(self._verified(token), self._claims)

    def _verified(self, token: str) -> Mapping[str, Any]:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            key = self._key(header)
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[str(header["alg"])],
                audience=self._audience,
                issuer=self._issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError as error:
            raise unauthenticated("this token has expired", "token_expired") from error
        except jwt.InvalidTokenError as error:
            raise unauthenticated(f"this token is not valid: {error}", "invalid_token") from error
        return claims

    def _key(self, header: Mapping[str, Any]) -> PyJWK:
        """Return the key that a token names; the only one where it names none."""
        algorithm = header.get("alg")
        if algorithm not in self._algorithms:
            raise unauthenticated("this token's algorithm is not taken here", "invalid_token")
        kid = header.get("kid")
        if kid is None and len(self._keys) == 1:
            key = next(iter(self._keys.values()))
        elif isinstance(kid, str) and kid in self._keys:
            key = self._keys[kid]
        else:
            raise unauthenticated("this token's key is not known here", "invalid_token")
        if key.algorithm_name != algorithm:
            raise unauthenticated("this token's algorithm is not its key's", "invalid_token")
        return key


def _caller(claims: Mapping[str, Any], names: Claims) -> Caller:
    tenant, principal = claims.get(names.tenant), claims.get(names.principal)
    if not _is_name(tenant):
        raise Fault(
            403,
            f"this token names no tenant: its claim {names.tenant!r} must be a text",
            code="no_tenant",
            kind="permission_error",
        )
    access = claims.get(names.access) or ()
    tags = access.split() if isinstance(access, str) else access
    return Caller(
        tenant=str(tenant),
        principal=str(principal) if _is_name(principal) else None,
        access=frozenset(str(tag) for tag in tags) if isinstance(tags, list) else frozenset(),
    )


def _is_name(value: Any) -> bool:
    if not isinstance(value, str) or not 0 < len(value.strip()) <= _NAME_CHARS_MAX:
        return False
    return value.isprintable()


def _refuse_unsafe(issuer: str, audience: str, algorithms: Sequence[str]) -> None:
    if not issuer or not audience:
        raise ConfigError(
            "signed tokens need gateway.jwt_issuer and gateway.jwt_audience: without them a token "
            "made for anything else would open this gateway"
        )
    refused = sorted(set(algorithms) - ALGORITHMS)
    if refused or not algorithms:
        raise ConfigError(
            f"gateway.jwt_algorithms holds {', '.join(refused) or 'nothing'}: it takes "
            f"{', '.join(sorted(ALGORITHMS))}"
        )


def read_jwks(path: Path) -> Mapping[str, PyJWK]:
    """Read the public keys of an issuer, by their ids.

    Raises:
        ConfigError: The file cannot be read, or holds no key that can verify.
    """
    from jwt import PyJWKSet
    from jwt.exceptions import PyJWTError

    try:
        found = PyJWKSet.from_dict(json.loads(path.read_text(encoding="utf-8"))).keys
    except OSError as error:
        raise ConfigError(f"JWKS file {path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, AttributeError, PyJWTError) as error:
        raise ConfigError(f"JWKS file {path} is malformed: {error}") from error
    usable = [key for key in found if key.algorithm_name in ALGORITHMS]
    if not usable:
        raise ConfigError(
            f"JWKS file {path} holds no public key for {', '.join(sorted(ALGORITHMS))}"
        )
    keys = {key.key_id or "": key for key in usable}
    if len(keys) != len(usable):
        raise ConfigError(f"JWKS file {path} holds two keys of one id: give each its own 'kid'")
    return keys
