"""Reports on captures as HTML pages, with a section for each protocol.

`trunkline.capture.report` and `trunkline.spark.report` make them; the returned `Report` has every number of the page.
"""

from __future__ import annotations

from trunkline.report.model import Report, Section

__all__ = ["Report", "Section"]

# Of all protocols, written by tools/lists.py.
from trunkline.report.cdt import CdtSection, LaggingEndpoint, RefusedPull, VersionReport
from trunkline.report.cdtp import CdtpSection, RunReport, SenderReport
from trunkline.report.dcp import DcpSection, ServiceReport
from trunkline.report.mc0 import Mc0Section, RefusalReport, TopicReport
from trunkline.report.mtl import MtlSection, RefusedLogin, ResourceReport

__all__ += [
    "CdtSection",
    "CdtpSection",
    "DcpSection",
    "LaggingEndpoint",
    "Mc0Section",
    "MtlSection",
    "RefusalReport",
    "RefusedLogin",
    "RefusedPull",
    "ResourceReport",
    "RunReport",
    "SenderReport",
    "ServiceReport",
    "TopicReport",
    "VersionReport",
]
# End of what tools/lists.py writes.

__dir__ = __all__.copy
