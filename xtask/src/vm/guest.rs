//! A guest: a virtual machine that is booted for one command.
//!
//! It has the host's `/usr` and this workspace, both read-only and at the places where the host
//! has them, so that what is built here runs there. The processor is emulated: nothing depends on
//! what the host allows, and absolute times in the guest say nothing.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::image;
use super::kernel::Kernel;
use crate::packages;
use crate::part::Unavailable;
use crate::run::Streams;
use crate::workspace::Workspace;

/// How long a boot may take, on a machine that has other work, too.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// How long a guest that runs its command may give no sign of life, of which it gives one in five
/// seconds.
const STANDSTILL: Duration = Duration::from_secs(240);
/// How often a boot is tried.
const BOOTS: usize = 4;
/// Words of the line in which a kernel begins to say what it dies of.
const LAST_WORDS: [&str; 5] =
    ["BUG: ", "kernel BUG at", "Oops: ", "general protection fault", "Kernel panic"];

/// What a guest is like.
pub struct Guest<'a> {
    pub kernel: &'a Kernel,
    pub memory_mib: u32,
    pub processors: u32,
    /// How long the command may take once the guest is up.
    pub limit: Duration,
    /// How long it may give no sign of life meanwhile.
    pub standstill: Duration,
    /// Whether there is an IOMMU, and behind it a device for VFIO (qemu's `edu`).
    pub iommu: bool,
    /// Variables of the command.
    pub environment: Vec<(String, OsString)>,
    mounts: Vec<Mount>,
    /// Where the command begins.
    folder: PathBuf,
    /// Where the kernel's log of a guest that failed is kept.
    logs: PathBuf,
}

/// A folder of the host in the guest.
struct Mount {
    host: PathBuf,
    guest: PathBuf,
    writable: bool,
}

/// How a guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The command ended with this exit status.
    Status(u8),
    /// The command took longer than it may.
    TimedOut,
    /// The guest as a whole came to a stop before the command ended.
    StoodStill,
    /// The guest ended before the command did.
    Died,
}

impl End {
    /// The status to end with: the command's own, or as `timeout` and `docker run` have it.
    pub fn status(self) -> u8 {
        match self {
            Self::Status(status) => status,
            Self::TimedOut => 124,
            Self::StoodStill | Self::Died => 125,
        }
    }
}

/// A guest that has ended. Its output has been passed on.
pub struct Ended {
    pub end: End,
    /// Of the last boot.
    pub stdout: String,
    pub stderr: String,
    /// How qemu itself ended.
    pub qemu: ExitStatus,
    /// What became of the boots before the last.
    pub before: Vec<String>,
}

impl<'a> Guest<'a> {
    /// A guest with 2 GiB of memory and two processors, whose command may take ten minutes and
    /// begins in the workspace.
    pub fn new(workspace: &Workspace, kernel: &'a Kernel) -> Self {
        let mount = |host: &Path, guest: &Path| Mount {
            host: host.into(),
            guest: guest.into(),
            writable: false,
        };
        let mut mounts = vec![
            mount(Path::new("/usr"), Path::new("/usr")),
            mount(kernel.folder(), Path::new(image::MODULES)),
            mount(workspace.root(), workspace.root()),
        ];
        if !workspace.target().starts_with(workspace.root()) {
            mounts.push(mount(workspace.target(), workspace.target()));
        }
        Self {
            kernel,
            memory_mib: 2048,
            processors: 2,
            limit: Duration::from_secs(600),
            standstill: STANDSTILL,
            iommu: false,
            environment: Vec::new(),
            mounts,
            folder: workspace.root().into(),
            logs: workspace.target().join("vm"),
        }
    }

    /// The same with the host's `folder` as `/share`, writable, where the command begins.
    pub fn share(mut self, folder: &Path) -> Result<Self> {
        let host = folder.canonicalize();
        let host = host.with_context(|| format!("no folder {} to share", folder.display()))?;
        self.folder = "/share".into();
        self.mounts.push(Mount { host, guest: "/share".into(), writable: true });
        Ok(self)
    }

    /// Boots the guest, runs `command` in it and waits for its end. Output is passed on as it
    /// comes. A guest that does not come up, whose kernel dies, or that stands still, command
    /// and all, is booted again with one processor: kernels change their own code (breakpoints
    /// of tracepoints and kprobes, static branches and calls), and before qemu 8.1 a processor
    /// that translates the code just then keeps what it read. Some three in a hundred of new
    /// kernels die so, one in ten of those whose functions are probed, by `int3`, at address
    /// 0, or without a word. A processor that is alone runs no stale translation, so what
    /// kills its kernel does so in each boot.
    pub fn run(&self, command: &[OsString]) -> Result<Ended> {
        let image = image::build(self.kernel)?;
        let (mut before, mut processors) = (Vec::new(), self.processors);
        loop {
            let boot = Boot::prepare(self, command, &image)?;
            let mut ended = boot.run(self, processors)?;
            if let End::Status(_) = ended.end {
                ended.before = before;
                return Ok(ended);
            }
            let log = boot.keep_log(self)?;
            let what = match (boot.begun(), ended.end) {
                (false, _) => "did not come up".into(),
                (true, End::TimedOut) => format!("was stopped after {} s", self.limit.as_secs()),
                (true, End::StoodStill) => {
                    format!("gave no sign of life for {} s", self.standstill.as_secs())
                }
                (true, _) => format!("died (qemu ended with {})", ended.qemu),
            };
            let what = format!("guest {} {what}: {}", self.kernel.release, log.why());
            eprintln!("{what}; its log: {}\n{}", log.path.display(), log.told());
            // Not if qemu itself was killed.
            let died =
                ended.end == End::Died && ended.qemu.success() || ended.end == End::StoodStill;
            before.push(what);
            let boots = before.len();
            if boot.begun() && !died || boots == BOOTS {
                ended.before = before;
                return Ok(ended);
            }
            processors = 1;
            eprintln!("booting it again with one processor ({} of {BOOTS})", boots + 1);
        }
    }
}

/// One boot of a guest: its files.
struct Boot {
    files: TempDir,
}

/// What the kernel of a guest said.
struct Log {
    path: PathBuf,
    text: String,
}

impl Boot {
    fn prepare(guest: &Guest<'_>, command: &[OsString], image: &[u8]) -> Result<Self> {
        let boot = Self { files: tempfile::tempdir().context("cannot make a folder")? };
        let control = boot.control("");
        fs::create_dir(&control).with_context(|| format!("cannot make {}", control.display()))?;
        let write = |path: PathBuf, content: &[u8]| {
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
        };
        write(boot.files.path().join("image"), image)?;
        let mut mounts = Vec::new();
        for (at, mount) in guest.mounts.iter().enumerate() {
            let mode = if mount.writable { "rw" } else { "ro" };
            mounts.extend_from_slice(format!("m{at} {mode} ").as_bytes());
            mounts.extend_from_slice(mount.guest.as_os_str().as_bytes());
            mounts.push(b'\n');
        }
        write(boot.control("mounts"), &mounts)?;
        write(boot.control("folder"), guest.folder.as_os_str().as_bytes())?;
        let mut words = Vec::new();
        for word in command {
            ended_by_zero(&mut words, &[word.as_bytes()]);
        }
        write(boot.control("command"), &words)?;
        words.clear();
        for (name, value) in &guest.environment {
            ended_by_zero(&mut words, &[name.as_bytes(), b"=", value.as_bytes()]);
        }
        write(boot.control("environment"), &words)?;
        Ok(boot)
    }

    /// A file of the folder by which guest and host talk.
    fn control(&self, name: &str) -> PathBuf {
        self.files.path().join("control").join(name)
    }

    fn console(&self) -> PathBuf {
        self.files.path().join("console")
    }

    /// Whether the guest came up and began the command.
    fn begun(&self) -> bool {
        self.control("begun").exists()
    }

    fn run(&self, guest: &Guest<'_>, processors: u32) -> Result<Ended> {
        let mut qemu = self.qemu(guest, processors).spawn().context("cannot start qemu")?;
        let streams = Streams::of(&mut qemu);
        let waited = self.wait(guest, &mut qemu);
        // It has ended already unless it took too long.
        let _ = qemu.kill();
        let qemu = qemu.wait().context("cannot wait for qemu")?;
        let (stdout, stderr) = streams.read();
        let end = match fs::read_to_string(self.control("status")) {
            Ok(status) => End::Status(status_of(&status)?),
            Err(_) => waited?,
        };
        Ok(Ended { end, stdout, stderr, qemu, before: Vec::new() })
    }

    /// Waits for the end of qemu, and says how the guest ended if the command did not.
    fn wait(&self, guest: &Guest<'_>, qemu: &mut Child) -> Result<End> {
        let mut since = Instant::now();
        let mut begun = false;
        let (mut sign, mut alive) = (String::new(), since);
        while qemu.try_wait().context("cannot wait for qemu")?.is_none() {
            if !begun && self.begun() {
                (begun, since) = (true, Instant::now());
                alive = since;
            }
            if since.elapsed() > if begun { guest.limit } else { BOOT_LIMIT } {
                return Ok(End::TimedOut);
            }
            // Not there before it has begun, and empty while it is written.
            let now = fs::read_to_string(self.control("alive")).unwrap_or_default();
            if now != sign {
                (sign, alive) = (now, Instant::now());
            } else if begun && alive.elapsed() > guest.standstill {
                return Ok(End::StoodStill);
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(End::Died)
    }

    fn qemu(&self, guest: &Guest<'_>, processors: u32) -> Command {
        // qemu ends with this process, however that ends.
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none"]);
        qemu.args(["-no-reboot", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"]);
        qemu.args(["-smp", &processors.to_string(), "-m", &guest.memory_mib.to_string()]);
        qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
        qemu.arg("-serial").arg(with_path("file:", &self.console(), ""));
        // Standard output and standard error of the command, byte for byte. Files and not `stdio`,
        // which takes the end of its input for that of its output.
        qemu.args(["-device", "virtio-serial-pci"]);
        qemu.args(["-chardev", "file,id=out,path=/dev/fd/1,append=on"]);
        qemu.args(["-device", "virtserialport,chardev=out,name=out"]);
        qemu.args(["-chardev", "file,id=err,path=/dev/fd/2,append=on"]);
        qemu.args(["-device", "virtserialport,chardev=err,name=err"]);
        let mut share = |tag: &str, host: &Path, writable: bool| {
            let readonly = if writable { "off" } else { "on" };
            let last =
                format!(",mount_tag={tag},readonly={readonly},security_model=none,multidevs=remap");
            qemu.arg("-virtfs").arg(with_path("local,path=", host, &last));
        };
        share("control", &self.control(""), true);
        for (at, mount) in guest.mounts.iter().enumerate() {
            share(&format!("m{at}"), &mount.host, mount.writable);
        }
        // An oops ends the guest at once: what would follow is of no use.
        let mut line = String::from(
            "console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off random.trust_cpu=on \
             no_timer_check",
        );
        if guest.iommu {
            qemu.args(["-device", "intel-iommu,intremap=on", "-device", "edu"]);
            line += " intel_iommu=on";
        }
        qemu.arg("-kernel").arg(guest.kernel.image());
        qemu.arg("-initrd").arg(self.files.path().join("image"));
        qemu.args(["-append", &line]);
        qemu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        qemu
    }

    fn keep_log(&self, guest: &Guest<'_>) -> Result<Log> {
        fs::create_dir_all(&guest.logs)
            .with_context(|| format!("cannot make {}", guest.logs.display()))?;
        // qemu that did not even start has written none.
        let log = fs::read(self.console()).unwrap_or_default();
        // One for each, so that the next guest that fails does not take its place.
        let name = format!("{}-", guest.kernel.release);
        let file = tempfile::Builder::new().prefix(&name).suffix(".log").tempfile_in(&guest.logs);
        let (_, path) = file.context("cannot make a log")?.keep().context("cannot keep a log")?;
        fs::write(&path, &log).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Log { path, text: String::from_utf8_lossy(&log).into_owned() })
    }
}

impl Log {
    /// The line in which the kernel begins to say what it dies of, and its place.
    fn last_words(&self) -> Option<(usize, &str)> {
        let mut lines = self.text.lines().enumerate();
        lines.find(|(_, line)| LAST_WORDS.iter().any(|words| line.contains(words)))
    }

    /// What the guest died of, in a line.
    fn why(&self) -> &str {
        self.last_words().map_or("its kernel says nothing of it", |(_, line)| line)
    }

    /// What is worth reading, indented: from the last words on, else the last lines.
    fn told(&self) -> String {
        let lines: Vec<_> = self.text.lines().collect();
        let first = self.last_words().map_or(lines.len().saturating_sub(12), |(at, _)| at);
        lines.iter().skip(first).take(40).map(|line| format!("    {line}\n")).collect()
    }
}

/// Appends `pieces` as one word that a zero byte ends.
fn ended_by_zero(words: &mut Vec<u8>, pieces: &[&[u8]]) {
    for piece in pieces {
        words.extend_from_slice(piece);
    }
    words.push(0);
}

/// An argument of qemu with `path` in it, whose commas are doubled.
fn with_path(before: &str, path: &Path, after: &str) -> OsString {
    let mut bytes = before.as_bytes().to_vec();
    for &byte in path.as_os_str().as_bytes() {
        bytes.push(byte);
        if byte == b',' {
            bytes.push(byte);
        }
    }
    bytes.extend_from_slice(after.as_bytes());
    OsString::from_vec(bytes)
}

/// Reads what the guest wrote of the command's exit status.
fn status_of(text: &str) -> Result<u8> {
    text.trim().parse().with_context(|| format!("the guest gives `{text}` as an exit status"))
}

/// Whether this machine can have guests, with what they need installed if it is not there. They
/// run this machine's programs, so their kernel must.
pub fn possible() -> Result<()> {
    let unavailable = |why: &str| anyhow::Error::new(Unavailable(why.into()));
    if !cfg!(target_arch = "x86_64") {
        return Err(unavailable("the guests are x86-64 machines that run this machine's programs"));
    }
    if !fs::read_link("/lib64").is_ok_and(|to| to.ends_with("usr/lib64")) {
        return Err(unavailable(
            "/lib64 is not in /usr here, and the guests have no more than /usr",
        ));
    }
    packages::get(&[packages::HYPERVISOR, packages::RDMA])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_the_commands_own_status_or_says_why_there_is_none() {
        assert_eq!(End::Status(7).status(), 7);
        assert_eq!(End::TimedOut.status(), 124);
        assert_eq!((End::Died.status(), End::StoodStill.status()), (125, 125));
        assert_eq!(status_of("255\n").unwrap(), 255);
        assert!(status_of("").is_err() && status_of("256").is_err());
    }

    #[test]
    fn commas_in_a_path_do_not_end_it() {
        assert_eq!(with_path("path=", Path::new("/a,b"), ",id=x"), "path=/a,,b,id=x");
    }

    #[test]
    fn words_keep_their_spaces_and_quotes() {
        let mut words = Vec::new();
        ended_by_zero(&mut words, &[b"it's", b"=", b"a b"]);
        ended_by_zero(&mut words, &[]);
        assert_eq!(words, b"it's=a b\0\0");
    }

    #[test]
    fn a_log_is_quoted_from_the_kernels_last_words_or_by_its_end() {
        let mut text: String = (0..20).map(|at| format!("line {at}\n")).collect();
        let log = |text: &str| Log { path: "log".into(), text: text.into() };
        let told = log(&text).told();
        assert!(told.starts_with("    line 8\n") && told.ends_with("    line 19\n"), "{told}");
        assert_eq!(log(&text).why(), "its kernel says nothing of it");
        text = text.replace("line 3\n", "[ 3.1] Oops: int3: 0000 [#1] SMP NOPTI\n");
        let told = log(&text).told();
        assert!(told.starts_with("    [ 3.1] Oops: int3") && told.contains("line 19"), "{told}");
        assert!(log(&text).why().contains("int3"), "{text}");
    }
}
