//! Reading objects, wherever git keeps them at the moment: loose, in a pack, or in an alternate object directory.
//!
//! What must never happen here: an object that git's maintenance is moving from one file to another is called missing,
//! or one that the system does not let us look at.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gix::objs::{Find, Kind};

use super::{alternates, stored};
use crate::id::Oid;
use crate::store::lock::Wait;
use crate::store::{StoreError, durable};

/// An object that is nowhere is looked for again for so long, while its places change under the look.
const LOOK_AGAIN_FOR: Duration = Duration::from_secs(1);

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
    /// `Missing` where a whole look found it nowhere, `Damaged` where the bytes are no object.
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
        let dirs = self.dirs()?;
        let mut wait = Wait::new(LOOK_AGAIN_FOR);
        loop {
            // Whatever moves an object gives it its new place before it takes away the old one: who looked at all places
            // while the packs stayed the same saw it, loose or packed, if it is there.
            let packs = packs(&dirs)?;
            // Opened anew: what an open store knows of the packs may be what is wrong.
            if let Some(kind) = look(id, &self.open()?, object, out)? {
                return Ok(kind);
            }
            if !is_loose(&dirs, object)? && packs == self::packs(&dirs)? {
                return Err(StoreError::Missing { id });
            }
            if !wait.pause() {
                let what = format!("cannot tell whether there is an object {id}: the packs do not stop changing");
                return Err(StoreError::Io { what, source: ErrorKind::TimedOut.into() });
            }
        }
    }

    /// The directories of all stores, alternates included.
    fn dirs(&self) -> Result<Vec<PathBuf>, StoreError> {
        let mut dirs = Vec::new();
        for store in self.stores()? {
            let store = store.store_ref();
            dirs.push(store.path().to_owned());
            let alternates = store.alternate_db_paths().map_err(|error| io::Error::other(error.to_string()));
            dirs.extend(alternates.map_err(durable::unreadable("list the alternates of", store.path()))?);
        }
        Ok(dirs)
    }

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

/// The index files of all packs. Each is one that can be opened, or has vanished meanwhile: an index that gix cannot open
/// it passes over, and every object of that pack would be called missing.
fn packs(dirs: &[PathBuf]) -> Result<BTreeSet<PathBuf>, StoreError> {
    let mut found = BTreeSet::new();
    for dir in dirs.iter().map(|dir| dir.join("pack")) {
        let Some(entries) = unless_absent("list", &dir, fs::read_dir(&dir))? else { continue };
        for entry in entries {
            let path = entry.map_err(durable::unreadable("list", &dir))?.path();
            let is_index = path.extension().is_some_and(|of| of == "idx") || path.ends_with("multi-pack-index");
            if is_index && unless_absent("open", &path, File::open(&path))?.is_some() {
                found.insert(path);
            }
        }
    }
    Ok(found)
}

/// Whether it is a loose object. (gix takes what it cannot look at for absent.)
fn is_loose(dirs: &[PathBuf], object: &gix::hash::oid) -> Result<bool, StoreError> {
    for dir in dirs {
        let path = gix::odb::loose::Store::at(dir, object.kind()).object_path(object);
        if unless_absent("look at", &path, fs::metadata(&path))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `None` for what does not exist.
fn unless_absent<T>(doing: &'static str, path: &Path, result: io::Result<T>) -> Result<Option<T>, StoreError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(durable::unreadable(doing, path)(error)),
    }
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
