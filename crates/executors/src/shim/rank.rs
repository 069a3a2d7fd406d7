//! Starting one rank.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use falaj_base::Secret;
use rustix::process::Pid;

use super::record::Kept;
use crate::folder;
use crate::process::MARK;

/// A rank's output file, made if it is missing.
pub(super) fn log(folder: &Path, rank: usize) -> io::Result<File> {
    let name = folder::log_name(u32::try_from(rank).unwrap_or(u32::MAX));
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(folder.join(name))
}

/// Starts a rank in a process group of its own, with both streams into its log.
pub(super) fn start(
    kept: &Kept,
    secrets: &BTreeMap<String, Secret>,
    rank: usize,
    log: &File,
    folder: &Path,
) -> io::Result<Pid> {
    let place = &kept.ranks[rank];
    let mut command = Command::new(&kept.command[0]);
    command.args(&kept.command[1..]).current_dir(folder).process_group(0);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
    // The shim's own environment was chosen by the server: it holds nothing but where things are.
    command.envs(&kept.env);
    command.envs(secrets.iter().map(|(name, value)| (name, value.expose())));
    let gpus: Vec<String> = place.gpus.iter().map(u8::to_string).collect();
    // Set even where there are none: a job that asked for no GPU sees none.
    command.env("CUDA_VISIBLE_DEVICES", gpus.join(","));
    // They are counted as the driver counts them, and not the fastest first.
    command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    command.envs(&place.env);
    command.env(MARK, &kept.attempt).env("FALAJ_RANK", rank.to_string());
    let child = command.spawn()?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the kernel gave no id"))
}

/// Says in a rank's output why there is none.
pub(super) fn explain(mut log: &File, what: &str) {
    let _ = writeln!(log, "falaj: {what}");
}
