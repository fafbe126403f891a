//! Programs that crash, are killed, or do a great deal.

use crate::c::{Built, build_short};
use crate::{mkey_trace, read};
use mkey_trace::format::Recording;
use std::os::unix::process::ExitStatusExt;

/// What programs here begin with.
const PROGRAM: &str = "static struct ibv_pd *pd;

static inline struct ibv_mr *reg(size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, malloc(length), length, IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr);
	return mr;
}

static void begin(void)
{
	CHECK((pd = ibv_alloc_pd(open_first())));
}
";

fn build(test: &str, main: &str) -> Option<Built> {
    build_short(test, &format!("{PROGRAM}\n{main}"))
}

/// Runs a program under `mkey trace`: its status, both streams, and the recording.
fn traced(program: &Built, options: &[&str]) -> (i32, String, String, Recording) {
    let file = program.path().with_file_name("recording");
    let mut command = mkey_trace(&["--output".as_ref(), file.as_os_str()]);
    let ended = command.args(options).arg("--").arg(program.path()).output().unwrap();
    // As a shell would tell.
    let status = ended.status.code().or_else(|| ended.status.signal().map(|signal| 128 + signal));
    let [stdout, stderr] =
        [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (status.unwrap(), stdout, stderr, read(&file))
}

fn calls(recording: &Recording, verb: &str) -> usize {
    recording.calls.iter().filter(|call| call.verb == verb).count()
}

/// What was called before a program crashed, or was killed, is recorded to the last call.
#[test]
fn what_a_program_did_before_it_crashed_is_known() {
    let test = "what_a_program_did_before_it_crashed_is_known";
    for (end, code) in [("abort()", 134), ("raise(SIGKILL)", 137), ("raise(SIGSEGV)", 139)] {
        let main = format!(
            "int main(void)\n{{\n\tbegin();\n\tfor (int i = 0; i < 500; i++)\n\t\t\
             CHECK(ibv_dereg_mr(reg(4096)) == 0);\n\treg(8192);\n\t{end};\n}}\n"
        );
        let Some(program) = build(test, &main) else { return };
        let (status, _, stderr, recording) = traced(&program, &[]);
        assert_eq!(status, code, "{stderr}");
        let [process] = recording.processes.as_slice() else { panic!("{stderr}") };
        assert!(!process.exited, "{process:?}");
        assert_eq!(
            (calls(&recording, "ibv_reg_mr"), calls(&recording, "ibv_dereg_mr")),
            (501, 500)
        );
        let left: Vec<_> = recording.regions.iter().filter(|region| region.to.is_none()).collect();
        assert!(matches!(left.as_slice(), [region] if region.len == 8192), "{left:?}");
    }
}

#[test]
fn thousands_of_threads_lose_nothing() {
    let test = "thousands_of_threads_lose_nothing";
    let main = "static void *work(void *nothing)
{
	for (int i = 0; i < 5; i++)
		CHECK(ibv_dereg_mr(reg(256)) == 0);
	return nothing;
}

int main(void)
{
	pthread_t threads[100];

	begin();
	for (int round = 0; round < 30; round++) {
		for (int i = 0; i < 100; i++)
			CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
		for (int i = 0; i < 100; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
	}
	return 0;
}
";
    let Some(program) = build(test, main) else { return };
    let (status, _, stderr, recording) = traced(&program, &[]);
    assert_eq!(status, 0, "{stderr}");
    let counted = (calls(&recording, "ibv_reg_mr"), calls(&recording, "ibv_dereg_mr"));
    assert_eq!((counted, recording.processes[0].lost), ((15000, 15000), 0), "{stderr}");
    assert_eq!(recording.regions.len(), 15000);
    // The main one, which registers nothing, allocated the domain.
    assert_eq!(recording.threads.len(), 3001);
}

#[test]
fn ten_million_work_requests_are_counted_one_by_one() {
    let test = "ten_million_work_requests_are_counted_one_by_one";
    let main = "enum { CHAIN = 16, ALL = 10000000 };

int main(void)
{
	struct ibv_cq *cq;
	struct ibv_qp *qps[2];
	struct ibv_mr *mr;
	struct ibv_sge entry;
	struct ibv_send_wr wrs[CHAIN] = {0}, *bad;

	begin();
	CHECK((cq = ibv_create_cq(pd->context, 64, NULL, NULL, 0)));
	for (int i = 0; i < 2; i++)
		qps[i] = make_qp(pd, cq);
	connect_to(qps[0], qps[1]->qp_num);
	connect_to(qps[1], qps[0]->qp_num);
	CHECK((mr = ibv_reg_mr(pd, malloc(4096), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	entry = (struct ibv_sge){ (uintptr_t)mr->addr, 8, mr->lkey };
	for (int i = 0; i < CHAIN; i++) {
		wrs[i].sg_list = &entry;
		wrs[i].num_sge = 1;
		wrs[i].opcode = IBV_WR_RDMA_WRITE;
		wrs[i].wr.rdma.remote_addr = (uintptr_t)mr->addr + 64;
		wrs[i].wr.rdma.rkey = mr->rkey;
		wrs[i].next = i + 1 < CHAIN ? &wrs[i + 1] : NULL;
	}
	wrs[CHAIN - 1].send_flags = IBV_SEND_SIGNALED;
	for (int i = 0; i < ALL / CHAIN; i++) {
		CHECK(ibv_post_send(qps[0], wrs, &bad) == 0);
		CHECK(polled(cq) == 0);
	}
	return 0;
}
";
    let Some(program) = build(test, main) else { return };
    let (status, _, stderr, recording) = traced(&program, &[]);
    assert_eq!(status, 0, "{stderr}");
    let region = &recording.regions[0];
    assert_eq!((region.writes, region.in_flight), (10_000_000, 0));
    let queue = recording.queues.iter().find(|queue| queue.completed > 0).unwrap();
    assert!(queue.followed);
    assert_eq!(queue.posted["write"], 10_000_000);
    assert_eq!(recording.remotes[0].writes, 10_000_000);
    assert_eq!(recording.threads[0].posts, 10_000_000);
    assert!(recording.findings.is_empty(), "{:?}", recording.findings);
}

#[test]
fn a_declared_command_is_in_what_calls_take_and_is_told() {
    let test = "a_declared_command_is_in_what_calls_take_and_is_told";
    let main = "int main(void)\n{\n\tbegin();\n\treturn ibv_dereg_mr(reg(4096));\n}\n";
    let Some(program) = build(test, main) else { return };
    let (status, _, stderr, recording) = traced(&program, &["--command-cost", "1ms"]);
    assert_eq!(status, 0, "{stderr}");
    assert_eq!(recording.job.command_cost, Some(1_000_000));
    assert!(stderr.contains("simulated: software RNIC, a declared 1.00ms a command"), "{stderr}");
    for verb in ["ibv_reg_mr", "ibv_dereg_mr"] {
        let call = recording.calls.iter().find(|call| call.verb == verb).unwrap();
        assert!(call.end - call.begin >= 1_000_000, "{call:?}");
    }
}
