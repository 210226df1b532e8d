//! A file system in a file, which can be cut off as a power failure would.
//!
//! What must never happen here: the file system that is shut down is another one than ours. The directory is opened,
//! and must be on a loop device that is not the one of its parent.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::support::{STUCK, isolated, poll_until, run_within};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Ext4,
    Xfs,
}

/// An image, mounted or not. Dropped, it is unmounted.
#[derive(Debug)]
pub struct Image {
    kind: Kind,
    file: PathBuf,
    pub mount_point: PathBuf,
    mounted: bool,
}

/// Set once this process has its mounts to itself.
const OWN_MOUNTS: &str = "PROVE_OWN_MOUNTS";

/// Starts this program anew with mounts of its own, which are gone when it ends, however it does. Where another mount
/// namespace held a copy of a mount, unmounting would not be the end of the file system: mounted again, it would still
/// be shut down. Returns where that is not possible, or done.
pub fn own_mounts() {
    let possible =
        || run_within(isolated("unshare").args(["--mount", "true"]), STUCK).is_ok_and(|done| done.code() == 0);
    if std::env::var_os(OWN_MOUNTS).is_none()
        && let Ok(program) = std::env::current_exe()
        && possible()
    {
        let mut again = Command::new("unshare");
        again.arg("--mount").arg(program).args(std::env::args_os().skip(1)).env(OWN_MOUNTS, "1");
        // Comes back only if it failed: then things go on as they are.
        let _failed = again.exec();
    }
}

/// `LOOP_MAJOR` of the kernel.
const LOOP_MAJOR: u32 = 7;

impl Image {
    /// Prepares the places of an image; [`Image::format`] makes it.
    pub fn new(kind: Kind, scratch: &Path) -> Result<Image> {
        let mount_point = scratch.join("mount");
        fs::create_dir(&mount_point)?;
        Ok(Image { kind, file: scratch.join("image"), mount_point, mounted: false })
    }

    /// Makes a new file system and mounts it.
    pub fn format(&mut self) -> Result<()> {
        self.unmount()?;
        let (mebibytes, program, options) = match self.kind {
            Kind::Ext4 => (256, "mkfs.ext4", ["-q", "-F"]),
            Kind::Xfs => (512, "mkfs.xfs", ["-q", "-f"]),
        };
        // A new file, so that nothing of the one before is left in it.
        let file = File::create(&self.file)?;
        file.set_len(mebibytes << 20)?;
        run_within(isolated(program).args(options).arg(&self.file), STUCK)?.ok().context(program)?;
        self.mount()
    }

    /// Mounts it; the kernel replays the journal.
    pub fn mount(&mut self) -> Result<()> {
        // The loop device is freed by the kernel at the unmount.
        let mut mount = isolated("mount");
        mount.args(["-o", "loop"]).arg(&self.file).arg(&self.mount_point);
        run_within(&mut mount, STUCK)?.ok().context("mount")?;
        self.mounted = true;
        self.opened()?;
        let alive = File::create(self.mount_point.join("alive"));
        alive.context("still shut down: another mount namespace must have kept it mounted")?;
        Ok(())
    }

    pub fn unmount(&mut self) -> Result<()> {
        if !self.mounted {
            return Ok(());
        }
        // A process that was writing may need a moment to notice that its file system is gone.
        poll_until("unmounting", STUCK, || {
            Ok(run_within(isolated("umount").arg(&self.mount_point), STUCK)?.status.success())
        })?;
        self.mounted = false;
        Ok(())
    }

    /// Cuts it off: nothing more reaches the image, not even the journal of what happened before.
    pub fn shut_down(&self) -> Result<()> {
        /// `EXT4_IOC_SHUTDOWN`, and `XFS_IOC_GOINGDOWN`: `_IOR('X', 125, __u32)`.
        const SHUTDOWN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(b'X', 125);
        /// `EXT4_GOING_FLAGS_NOLOGFLUSH`, and `XFS_FSOP_GOING_FLAGS_NOLOGFLUSH`.
        const WITHOUT_LOG_FLUSH: u32 = 2;
        let root = self.opened()?;
        #[allow(unsafe_code, reason = "there is no safe form of this ioctl")]
        // SAFETY: the kernel reads one u32 behind the pointer, which is what `Setter` passes, and keeps nothing.
        unsafe {
            rustix::ioctl::ioctl(&root, rustix::ioctl::Setter::<SHUTDOWN, u32>::new(WITHOUT_LOG_FLUSH))?;
        }
        Ok(())
    }

    /// The root of the mounted file system, which is certainly ours.
    fn opened(&self) -> Result<File> {
        let root = File::open(&self.mount_point)?;
        let parent = self.mount_point.parent().context("a mount point has a parent")?;
        let device = root.metadata()?.dev();
        ensure!(device != fs::metadata(parent)?.dev(), "nothing is mounted at {}", self.mount_point.display());
        if rustix::fs::major(device) != LOOP_MAJOR {
            bail!("{} is not on a loop device", self.mount_point.display());
        }
        Ok(root)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.unmount().is_err() {
            // Lazily, so that no mount is left behind whatever still uses it.
            let _ = run_within(isolated("umount").arg("--lazy").arg(&self.mount_point), STUCK);
        }
    }
}
