//! Running as in a container: seccomp allow-list, another user, a small memlock limit.
//!
//! For tests, behind the feature `test-support`. The steps change the calling process for good,
//! so a test takes them in a forked child; the example `under_docker_seccomp` takes them and runs
//! a command.

use crate::error::{Errno, OsError};
use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// The user id of `nobody`.
pub const NOBODY: u32 = 65_534;

/// A step was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// By a system call.
    #[error("{0}")]
    Os(#[from] OsError),
    /// The filter could not be built or installed.
    #[error("seccomp: {0}")]
    Seccomp(String),
}

/// Sets RLIMIT_MEMLOCK, soft and hard, in bytes.
///
/// # Errors
/// [`ConfineError::Os`] if it would have to be raised without privilege.
pub fn limit_memlock(bytes: u64) -> Result<(), ConfineError> {
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::Memlock, limit)
        .map_err(|errno| OsError::new("setrlimit(RLIMIT_MEMLOCK)", errno).into())
}

/// Becomes the user and group of this id, without capabilities and further groups. The process
/// stays readable to itself below `/proc`, as after an exec.
///
/// # Errors
/// [`ConfineError::Os`] unless root.
pub fn become_user(id: u32) -> Result<(), ConfineError> {
    let done = |call, rc: i32| if rc == 0 { Ok(()) } else { Err(OsError::last(call)) };
    // SAFETY: the calls take plain values; an empty list of groups is given as such.
    unsafe {
        done("setgroups", libc::setgroups(0, std::ptr::null()))?;
        done("setgid", libc::setgid(id))?;
        done("setuid", libc::setuid(id))?;
        done("prctl", libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0))?;
    }
    Ok(())
}

/// Allows the system calls of Docker's default profile (of version 25 and later, without added
/// capabilities) to this thread and those it makes; all others answer EPERM, `clone3` ENOSYS.
/// Among those denied: io_uring, userfaultfd, mbind, perf_event_open.
///
/// # Errors
/// [`ConfineError::Seccomp`].
pub fn docker_seccomp() -> Result<(), ConfineError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    let when = |call: i64, tests: Vec<SeccompCmpTest>| -> Result<_, ConfineError> {
        let rules = tests.into_iter().map(|(op, value)| {
            let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, op, value);
            SeccompRule::new(vec![condition.map_err(seccomp)?]).map_err(seccomp)
        });
        Ok((call, rules.collect::<Result<Vec<_>, _>>()?))
    };
    // Not the families AF_ALG, AF_VSOCK and others that reach deep into the kernel.
    let families = [13..=18, 21..=22, 24..=24, 26..=33, 35..=36, 39..=39, 41..=45];
    let mut socket = vec![(SeccompCmpOp::Lt, 12)];
    socket.extend(families.into_iter().flatten().map(|family| (SeccompCmpOp::Eq, family)));
    let personalities = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];
    /// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
    const NAMESPACES: u64 = 0x7e02_0000;
    rules.extend([
        when(libc::SYS_socket, socket)?,
        when(
            libc::SYS_personality,
            personalities.into_iter().map(|p| (SeccompCmpOp::Eq, p)).collect(),
        )?,
        when(libc::SYS_clone, vec![(SeccompCmpOp::MaskedEq(NAMESPACES), 0)])?,
    ]);
    // Where filters disagree the sterner answer counts; so clone3 passes here and fails below.
    rules.insert(libc::SYS_clone3, Vec::new());
    let denied = SeccompAction::Errno(Errno::PERM.raw_os_error() as u32);
    install(rules, denied, SeccompAction::Allow)?;
    let unknown = SeccompAction::Errno(Errno::NOSYS.raw_os_error() as u32);
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    install(clone3, SeccompAction::Allow, unknown)
}

type SeccompCmpTest = (SeccompCmpOp, u64);

fn install(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<(), ConfineError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(seccomp)?;
    let filter = SeccompFilter::new(rules, otherwise, listed, arch).map_err(seccomp)?;
    let program = BpfProgram::try_from(filter).map_err(seccomp)?;
    seccompiler::apply_filter(&program).map_err(seccomp)
}

fn seccomp(error: impl std::fmt::Display) -> ConfineError {
    ConfineError::Seccomp(error.to_string())
}

/// The calls that Docker's default profile allows whatever their arguments, as far as the C library
/// crate names them.
#[rustfmt::skip]
const ALLOWED: &[i64] = {
    use libc::*;
    &[
        SYS_accept, SYS_accept4, SYS_access, SYS_adjtimex, SYS_alarm, SYS_bind, SYS_brk,
        SYS_capget, SYS_capset, SYS_chdir, SYS_chmod, SYS_chown, SYS_clock_adjtime,
        SYS_clock_getres, SYS_clock_gettime, SYS_clock_nanosleep, SYS_close, SYS_close_range,
        SYS_connect, SYS_copy_file_range, SYS_creat, SYS_dup, SYS_dup2, SYS_dup3,
        SYS_epoll_create, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_ctl_old, SYS_epoll_pwait,
        SYS_epoll_pwait2, SYS_epoll_wait, SYS_epoll_wait_old, SYS_eventfd, SYS_eventfd2,
        SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_faccessat, SYS_faccessat2,
        SYS_fadvise64, SYS_fallocate, SYS_fanotify_mark, SYS_fchdir, SYS_fchmod, SYS_fchmodat,
        SYS_fchmodat2, SYS_fchown, SYS_fchownat, SYS_fcntl, SYS_fdatasync, SYS_fgetxattr,
        SYS_flistxattr, SYS_flock, SYS_fork, SYS_fremovexattr, SYS_fsetxattr, SYS_fstat,
        SYS_fstatfs, SYS_fsync, SYS_ftruncate, SYS_futex, SYS_futex_waitv, SYS_futimesat,
        SYS_getcpu, SYS_getcwd, SYS_getdents, SYS_getdents64, SYS_getegid, SYS_geteuid,
        SYS_getgid, SYS_getgroups, SYS_getitimer, SYS_getpeername, SYS_getpgid, SYS_getpgrp,
        SYS_getpid, SYS_getppid, SYS_getpriority, SYS_getrandom, SYS_getresgid, SYS_getresuid,
        SYS_getrlimit, SYS_get_robust_list, SYS_getrusage, SYS_getsid, SYS_getsockname,
        SYS_getsockopt, SYS_get_thread_area, SYS_gettid, SYS_gettimeofday, SYS_getuid,
        SYS_getxattr, SYS_inotify_add_watch, SYS_inotify_init, SYS_inotify_init1,
        SYS_inotify_rm_watch, SYS_io_cancel, SYS_ioctl, SYS_io_destroy, SYS_io_getevents,
        SYS_ioprio_get, SYS_ioprio_set, SYS_io_setup, SYS_io_submit, SYS_kill,
        SYS_landlock_add_rule, SYS_landlock_create_ruleset, SYS_landlock_restrict_self,
        SYS_lchown, SYS_lgetxattr, SYS_link, SYS_linkat, SYS_listen, SYS_listxattr,
        SYS_llistxattr, SYS_lremovexattr, SYS_lseek, SYS_lsetxattr, SYS_lstat, SYS_madvise,
        SYS_membarrier, SYS_memfd_create, SYS_memfd_secret, SYS_mincore, SYS_mkdir, SYS_mkdirat,
        SYS_mknod, SYS_mknodat, SYS_mlock, SYS_mlock2, SYS_mlockall, SYS_mmap, SYS_mprotect,
        SYS_mq_getsetattr, SYS_mq_notify, SYS_mq_open, SYS_mq_timedreceive, SYS_mq_timedsend,
        SYS_mq_unlink, SYS_mremap, SYS_mseal, SYS_msgctl, SYS_msgget, SYS_msgrcv, SYS_msgsnd,
        SYS_msync, SYS_munlock, SYS_munlockall, SYS_munmap, SYS_name_to_handle_at, SYS_nanosleep,
        SYS_newfstatat, SYS_open, SYS_openat, SYS_openat2, SYS_pause, SYS_pidfd_open,
        SYS_pidfd_send_signal, SYS_pipe, SYS_pipe2, SYS_pkey_alloc, SYS_pkey_free,
        SYS_pkey_mprotect, SYS_poll, SYS_ppoll, SYS_prctl, SYS_pread64, SYS_preadv, SYS_preadv2,
        SYS_prlimit64, SYS_process_mrelease, SYS_pselect6, SYS_pwrite64, SYS_pwritev,
        SYS_pwritev2, SYS_read, SYS_readahead, SYS_readlink, SYS_readlinkat, SYS_readv,
        SYS_recvfrom, SYS_recvmmsg, SYS_recvmsg, SYS_remap_file_pages, SYS_removexattr,
        SYS_rename, SYS_renameat, SYS_renameat2, SYS_restart_syscall, SYS_rmdir, SYS_rseq,
        SYS_rt_sigaction, SYS_rt_sigpending, SYS_rt_sigprocmask, SYS_rt_sigqueueinfo,
        SYS_rt_sigreturn, SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_rt_tgsigqueueinfo,
        SYS_sched_getaffinity, SYS_sched_getattr, SYS_sched_getparam, SYS_sched_get_priority_max,
        SYS_sched_get_priority_min, SYS_sched_getscheduler, SYS_sched_rr_get_interval,
        SYS_sched_setaffinity, SYS_sched_setattr, SYS_sched_setparam, SYS_sched_setscheduler,
        SYS_sched_yield, SYS_seccomp, SYS_select, SYS_semctl, SYS_semget, SYS_semop,
        SYS_semtimedop, SYS_sendfile, SYS_sendmmsg, SYS_sendmsg, SYS_sendto, SYS_setfsgid,
        SYS_setfsuid, SYS_setgid, SYS_setgroups, SYS_setitimer, SYS_setpgid, SYS_setpriority,
        SYS_setregid, SYS_setresgid, SYS_setresuid, SYS_setreuid, SYS_setrlimit,
        SYS_set_robust_list, SYS_setsid, SYS_setsockopt, SYS_set_thread_area,
        SYS_set_tid_address, SYS_setuid, SYS_setxattr, SYS_shmat, SYS_shmctl, SYS_shmdt,
        SYS_shmget, SYS_shutdown, SYS_sigaltstack, SYS_signalfd, SYS_signalfd4, SYS_socketpair,
        SYS_splice, SYS_stat, SYS_statfs, SYS_statx, SYS_symlink, SYS_symlinkat, SYS_sync,
        SYS_sync_file_range, SYS_syncfs, SYS_sysinfo, SYS_tee, SYS_tgkill, SYS_time,
        SYS_timer_create, SYS_timer_delete, SYS_timer_getoverrun, SYS_timer_gettime,
        SYS_timer_settime, SYS_timerfd_create, SYS_timerfd_gettime, SYS_timerfd_settime,
        SYS_times, SYS_tkill, SYS_truncate, SYS_umask, SYS_uname, SYS_unlink, SYS_unlinkat,
        SYS_utime, SYS_utimensat, SYS_utimes, SYS_vfork, SYS_vmsplice, SYS_wait4, SYS_waitid,
        SYS_write, SYS_writev, SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace,
        SYS_arch_prctl, SYS_modify_ldt, SYS_chroot,
    ]
};
