"""How connections are encrypted by TLS."""

from __future__ import annotations

import os
from dataclasses import dataclass

from trunkline._arguments import need_flag, need_path
from trunkline.errors import LocalProtocolError

__all__ = ["Tls"]


@dataclass(frozen=True, slots=True)
class Tls:
    """How a server is trusted, and who this side is; all files are in PEM format. They are read when a role opens.

    Args:
        ca: The certificate authorities to trust; None: those of the system.
        certificate: The certificate of this side, with those that lead to its authority.
        key: Its key; None: it is in the file of the certificate.
        verify: Whether the server must be trusted; False encrypts for any server, and a host in between may read all.

    Raises:
        LocalProtocolError: An argument is of another type, or there is a key without a certificate.

    ```pycon
    >>> import trunkline
    >>> tls = trunkline.Tls(ca="ca.pem", certificate="me.pem", key="me.key")
    >>> tls.verify
    True

    ```
    """

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        if self.ca is not None:
            # Imported late: it takes more time than all else here.
            import ssl

            if isinstance(self.ca, ssl.SSLContext):
                message = "ca is a file of certificates: an ssl.SSLContext cannot be used"
                raise LocalProtocolError(message)
        for name in ("ca", "certificate", "key"):
            need_path(name, getattr(self, name), may_be_none=True)
        need_flag("verify", self.verify)
        if self.key is not None and self.certificate is None:
            message = "key= needs certificate= as well"
            raise LocalProtocolError(message)
