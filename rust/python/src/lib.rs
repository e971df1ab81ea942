//! `trunkline._native`: only conversion between Python and the crates that do the work.

use pyo3::prelude::*;

mod analysis;
mod caller;
mod capture;
mod cdt;
mod cdtp;
mod chirp;
mod columns;
mod counters;
mod dcp;
mod errors;
mod fields;
mod folder;
mod frames;
mod layouts;
mod location;
mod mc0;
mod msgpack;
mod mtl;
mod names;
mod notices;
mod reader;
mod role;
mod rooms;
mod scalars;
mod staging;
mod summary;
mod transport;
mod waiting;
mod world;
mod writer;

/// Every protocol.
static ROOMS: &[&rooms::Room] = &[&cdt::ROOM, &cdtp::ROOM, &chirp::ROOM, &dcp::ROOM, &mc0::ROOM, &mtl::ROOM];

/// The native part of trunkline; use the package around it.
#[pymodule(gil_used = false)]
mod _native {
    use std::collections::BTreeMap;

    use pyo3::prelude::*;
    use pyo3::types::PyCFunction;

    #[pymodule_export]
    use crate::caller::{Caller, Outgoing};
    #[pymodule_export]
    use crate::{
        cdt::module as cdt, cdtp::module as cdtp, chirp::module as chirp, dcp::module as dcp, mc0::module as mc0,
        mtl::module as mtl,
    };

    #[pymodule_export]
    use crate::columns::{PyProtocol, protocols};
    #[pymodule_export]
    use crate::notices::PyNotices;
    #[pymodule_export]
    use crate::role::{PyGuard, Role, shutdown};
    #[pymodule_export]
    use crate::rooms::{decode, topic};
    #[pymodule_export]
    use crate::transport::{transports, use_libzmq};
    #[pymodule_export]
    use crate::world::{PyPeer, PySimulation};

    /// "release", or "debug" for a build that is many times slower.
    #[pymodule_export]
    #[allow(non_upper_case_globals)] // Python's name
    const build_profile: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

    /// The version of trunkline.
    #[pymodule_export]
    #[allow(non_upper_case_globals)] // Python's name
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// The kinds of errors of invalid messages, by slug.
    #[pyfunction]
    fn error_kinds() -> Vec<&'static str> {
        trunkline_wire::ErrorKind::ALL.iter().map(|kind| kind.slug()).collect()
    }

    /// Why connections over our own transport are refused or given up, by slug, in words.
    #[pyfunction]
    fn connection_failures() -> BTreeMap<&'static str, &'static str> {
        trunkline_zmtp::Reason::ALL.iter().map(|reason| (reason.slug(), reason.meaning())).collect()
    }

    /// Whether a network of this host is up, be it the loopback network alone.
    #[pyfunction]
    fn has_network() -> bool {
        trunkline_engine::has_network()
    }

    /// The longest time that each bucket of latencies but the last counts, in nanoseconds.
    #[pyfunction]
    fn latency_bounds_ns() -> Vec<u64> {
        trunkline_wire::LATENCY_BOUNDS_NS.to_vec()
    }

    /// What each reason to drop a good message means, by slug.
    #[pyfunction]
    fn drop_meanings() -> BTreeMap<&'static str, &'static str> {
        trunkline_wire::DropKind::ALL.iter().map(|kind| (kind.slug(), kind.meaning())).collect()
    }

    #[pymodule]
    mod analysis {
        #[pymodule_export]
        use crate::analysis::{PyFold, divide, key};
        #[pymodule_export]
        use crate::summary::{PyPayloads, PySummary};
    }

    #[pymodule]
    mod capture {
        #[pymodule_export]
        use crate::capture::{
            MessageIterator, PyCapture, PyImport, RowIterator, compact, existing, groups, is_capture, mark_variants,
            need_unlocked, position, published, put_back, read_file, recover, replace, schema, segments, sizes, sums,
            verify,
        };
        #[pymodule_export]
        use crate::folder::{PyFolder, PyFolderFile, PyNewFile};
        #[pymodule_export]
        use crate::staging::{PyStager, publish};
        #[pymodule_export]
        use crate::writer::PyWriter;
    }

    #[pymodule]
    mod columns {
        #[pymodule_export]
        use crate::columns::{PyDecoder, PyRowBatches, PyShredding};
        #[pymodule_export]
        use crate::layouts::PyLayout;

        #[pymodule_export]
        use crate::columns::{column_kinds, unshredded, variant_json};
    }

    #[pymodule]
    mod msgpack {
        #[pymodule_export]
        use crate::msgpack::{decode, encode};
    }

    /// Makes `import trunkline._native.cdtp` work as for any package, and gives its members that module name: pickle
    /// needs it.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let modules = module.py().import("sys")?.getattr("modules")?;
        for (name, room) in module.dict() {
            let Ok(room) = room.cast_into::<PyModule>() else { continue };
            let path = format!("trunkline._native.{name}");
            room.setattr("__name__", &path)?;
            for member in room.dict().values() {
                if member.is_instance_of::<PyCFunction>() {
                    member.setattr("__module__", &path)?;
                }
            }
            modules.set_item(path, room)?;
        }
        Ok(())
    }
}
