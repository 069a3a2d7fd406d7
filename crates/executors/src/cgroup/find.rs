//! Finding which control groups this process may make.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::{Plan, SHIMS};

/// The group that a server moves itself to, to make room beside it. systemd's `DelegateSubgroup=server`
/// does the same before the start.
const SERVER: &str = "server";

pub(super) fn plan() -> Plan {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (own, mounts) = (text("/proc/self/cgroup"), text("/proc/self/mounts"));
    version_2(&own, &mounts).or_else(|| version_1(&own, &mounts)).unwrap_or_default()
}

/// Where a hierarchy is mounted: version 2 for an empty name, else the one with this controller.
fn mounted(mounts: &str, controller: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (folder, kind, options) = (words.nth(1)?, words.next()?, words.next()?);
        let fits = match kind {
            "cgroup2" => controller.is_empty(),
            "cgroup" => options.split(',').any(|option| option == controller),
            _ => false,
        };
        fits.then(|| PathBuf::from(folder))
    })
}

/// This process's own group in a hierarchy, as `/proc/self/cgroup` names it.
fn own_path<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|one| one == controller).then_some(path)
    })
}

/// The folder of this process's own group, if it may make groups in it.
fn own_folder(own: &str, mounts: &str, controller: &str) -> Option<PathBuf> {
    let mount = mounted(mounts, controller)?;
    let inside = mount.join(own_path(own, controller)?.trim_start_matches('/'));
    // In a container, the path may be one that only the host has.
    let folder = if inside.is_dir() { inside } else { mount };
    let ours = access(&folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        && access(folder.join("cgroup.procs"), Access::WRITE_OK).is_ok();
    ours.then_some(folder)
}

fn version_1(own: &str, mounts: &str) -> Option<Plan> {
    Some(Plan::V1 {
        memory: own_folder(own, mounts, "memory")?,
        cpu: own_folder(own, mounts, "cpu"),
        accounting: own_folder(own, mounts, "cpuacct"),
    })
}

fn version_2(own: &str, mounts: &str) -> Option<Plan> {
    let folder = own_folder(own, mounts, "")?;
    let above = folder.parent().filter(|_| folder.file_name().is_some_and(|name| name == SERVER));
    let base = above.unwrap_or(&folder).to_owned();
    if !has(&base.join("cgroup.controllers"), "memory") {
        return None;
    }
    if !has(&base.join("cgroup.subtree_control"), "memory") && !hand_down(&base) {
        // Groups with limits stand beside no processes: this one steps aside.
        let aside = base.join(SERVER);
        let _ = fs::create_dir(&aside);
        fs::write(aside.join("cgroup.procs"), "0").ok()?;
        if !hand_down(&base) {
            let _ = fs::write(base.join("cgroup.procs"), "0");
            let _ = fs::remove_dir(&aside);
            return None;
        }
    }
    let _ = fs::create_dir(base.join(SHIMS));
    let ready = access(base.join(SHIMS).join("cgroup.procs"), Access::WRITE_OK).is_ok();
    ready.then_some(Plan::V2 { base })
}

fn has(file: &Path, controller: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_ascii_whitespace().any(|one| one == controller)
}

/// Lets groups below have limits.
fn hand_down(base: &Path) -> bool {
    let file = base.join("cgroup.subtree_control");
    // First, and alone if it fails: the CPU can be handed down beside processes, and then nothing else can.
    if fs::write(&file, "+memory").is_err() {
        return false;
    }
    // Nice to have; memory is what a job can hurt others with.
    let _ = fs::write(&file, "+cpu");
    let _ = fs::write(&file, "+io");
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0";
    const OWN: &str = "4:memory:/jobs/a\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/";

    #[test]
    fn hierarchies_are_found_by_controller() {
        let found = |name: &str| mounted(HYBRID, name).map(|path| path.display().to_string());
        assert_eq!(found("memory").as_deref(), Some("/sys/fs/cgroup/memory"));
        assert_eq!(found("cpuacct").as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(found("").as_deref(), Some("/sys/fs/cgroup/unified"));
        assert_eq!(found("devices"), None);
    }

    #[test]
    fn so_is_the_own_group() {
        assert_eq!(own_path(OWN, "memory"), Some("/jobs/a"));
        assert_eq!(own_path(OWN, "cpuacct"), Some("/"));
        assert_eq!(own_path(OWN, ""), Some("/"));
        assert_eq!(own_path(OWN, "pids"), None);
    }
}
