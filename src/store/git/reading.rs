//! Reading objects, wherever git keeps them at the moment: loose, in a pack, or in an alternate object directory.
//!
//! What must never happen here: an object that git's maintenance is moving from one file to another is called missing.

use std::cell::OnceCell;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gix::objs::{Find, Kind};

use super::{alternates, stored};
use crate::id::Oid;
use crate::store::lock::Wait;
use crate::store::{StoreError, durable};

/// An object that is nowhere is looked for again for so long. A repack gives the new pack its name before it removes
/// what it replaces, so that another look is enough unless the next repack comes between.
const LOOK_AGAIN_FOR: Duration = Duration::from_millis(20);

/// The object directories of one repository, for reading.
pub(super) struct Reading {
    hash: gix::hash::Kind,
    loose: gix::odb::loose::Store,
    /// Packs and alternates included, in this order. Opened when first needed: until then a loose object is looked for
    /// directly. The tips of live tasks are loose as a rule, and opening the pack indices costs more than the rest of a
    /// heartbeat.
    stores: OnceCell<Vec<gix::odb::Handle>>,
}

impl Reading {
    pub(super) fn new(dir: PathBuf, hash: gix::hash::Kind) -> Reading {
        Reading { hash, loose: gix::odb::loose::Store::at(dir, hash), stores: OnceCell::new() }
    }

    /// The loose objects of the repository's own object directory.
    pub(super) fn loose(&self) -> &gix::odb::loose::Store {
        &self.loose
    }

    /// The stores that objects are read from: the object directory, and what `GIT_ALTERNATE_OBJECT_DIRECTORIES` lists.
    pub(super) fn stores(&self) -> Result<&[gix::odb::Handle], StoreError> {
        if let Some(stores) = self.stores.get() {
            return Ok(stores);
        }
        let stores = self.open()?;
        Ok(self.stores.get_or_init(|| stores))
    }

    fn open(&self) -> Result<Vec<gix::odb::Handle>, StoreError> {
        let alternates = std::env::var_os("GIT_ALTERNATE_OBJECT_DIRECTORIES");
        let alternates = alternates.iter().flat_map(|list| alternates::parse(list));
        let open = |dir: PathBuf| {
            // Room for as many packs again as there are, for processes that live long.
            let slots = gix::odb::store::init::Slots::AsNeededByDiskState { multiplier: 2.0, minimum: 256 };
            let options = gix::odb::store::init::Options { slots, ..Default::default() };
            // Without replacements: a record is what its id says, whatever refs/replace/ shows to people.
            gix::odb::at_opts(&dir, self.hash, [], options).map_err(durable::unreadable("open", &dir))
        };
        std::iter::once(Path::to_owned(self.loose.path())).chain(alternates).map(open).collect()
    }

    /// Reads an object into `out`; its id is `id` and, in gix's form, `object`.
    ///
    /// # Errors
    /// `Missing` after a second look, `Damaged` where the bytes are no object.
    pub(super) fn find(&self, id: Oid, object: &gix::hash::oid, out: &mut Vec<u8>) -> Result<Kind, StoreError> {
        if self.stores.get().is_none() {
            if let Some(kind) = self.find_stored(object, out) {
                return Ok(kind);
            }
            if let Some(found) = self.loose.try_find(object, out).map_err(failed(id))? {
                return Ok(found.kind);
            }
        }
        if let Some(kind) = look(id, self.stores()?, object, out)? {
            return Ok(kind);
        }
        let mut wait = Wait::new(LOOK_AGAIN_FOR);
        loop {
            // Opened anew: what an open store knows of the packs may be what is wrong.
            if let Some(kind) = look(id, &self.open()?, object, out)? {
                return Ok(kind);
            }
            if !wait.pause() {
                return Err(StoreError::Missing { id });
            }
        }
    }
}

impl Reading {
    /// Reads a loose object of pm's own. Whatever is not quite one is looked at by gix.
    fn find_stored(&self, object: &gix::hash::oid, out: &mut Vec<u8>) -> Option<Kind> {
        let stream = std::fs::read(self.loose.object_path(object)).ok()?;
        let (kind, content) = stored::unwrap(&stream)?;
        out.clear();
        out.extend_from_slice(content);
        Some(kind)
    }
}

/// Looks for an object in all stores. One whose pack was removed after it was listed was not found.
fn look(
    id: Oid,
    stores: &[gix::odb::Handle],
    object: &gix::hash::oid,
    out: &mut Vec<u8>,
) -> Result<Option<Kind>, StoreError> {
    for store in stores {
        match store.try_find(object, out).map(|found| found.map(|found| found.kind)).map_err(failed(id)) {
            Ok(None) => {}
            Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            result => return result,
        }
    }
    Ok(None)
}

/// Turns the failure of reading an object into a store error. For `map_err`.
fn failed(id: Oid) -> impl FnOnce(gix::Error) -> StoreError {
    move |error| match error.downcast_any_ref::<io::Error>() {
        // That is how the inflater says that the bytes are no zlib stream: the object's fault, not the system's.
        Some(io)
            if matches!(io.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
        {
            StoreError::Damaged { id, found: error.to_string() }
        }
        Some(io) => StoreError::Io { what: format!("cannot read object {id}"), source: io.kind().into() },
        None => StoreError::Damaged { id, found: error.to_string() },
    }
}
