//! `--refusals` and `--check`.

use crate::c::build_short;
use crate::{ended, mkey_run};
use std::fs;

/// Writes by a key that is none, leaves memory registered, ends.
const CARELESS: &str = "
int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *one = make_qp(pd, cq), *two = make_qp(pd, cq);
	static char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	CHECK(mr);
	connect_to(one, two->qp_num);
	connect_to(two, one->qp_num);
	if (getenv(\"CAREFUL\")) {
		CHECK(write_to(one, mr, 8, (uintptr_t)memory + 64, mr->rkey) == 0);
		CHECK(polled(cq) == IBV_WC_SUCCESS);
		CHECK(ibv_dereg_mr(mr) == 0);
	} else {
		CHECK(write_to(one, mr, 8, (uintptr_t)memory + 4090, mr->rkey) == 0);
		CHECK(polled(cq) == IBV_WC_REM_ACCESS_ERR);
	}
	return getenv(\"FAILS\") ? 9 : 0;
}
";

#[test]
fn findings_are_told_and_fail_a_checked_run() {
    let Some(program) = build_short("findings_are_told_and_fail_a_checked_run", CARELESS) else {
        return;
    };
    let path = program.path();
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = mkey_run(arguments);
        ended(command.arg(&path).envs(variables.iter().copied()))
    };
    let told = |text: &str| {
        let lines: Vec<_> = text.lines().collect();
        let [refused, leaked, rest @ ..] = &*lines else { panic!("{text}") };
        assert!(refused.starts_with("mkey: refused: RDMA WRITE of 8 bytes at 0x"), "{text}");
        assert!(refused.contains("ends 2 bytes past the range"), "{text}");
        assert!(leaked.starts_with("mkey: leaked: 4096 bytes at 0x"), "{text}");
        assert!(
            leaked.ends_with("on mkey0 were registered still when the program ended"),
            "{text}"
        );
        rest.join("\n")
    };
    // Silent unless asked.
    assert_eq!(run(&[], &[]), (0, String::new(), String::new()));
    let (code, _, stderr) = run(&["--refusals", "-"], &[]);
    assert_eq!((code, told(&stderr).as_str()), (0, ""));
    let (code, _, stderr) = run(&["--check"], &[]);
    assert_eq!((code, told(&stderr).as_str()), (1, "mkey: 2 findings"));
    // The program's own failure comes first.
    let (code, _, stderr) = run(&["--check"], &[("FAILS", "1")]);
    assert_eq!((code, told(&stderr).as_str()), (9, ""));
    let careful = run(&["--check", "--refusals", "-"], &[("CAREFUL", "1")]);
    assert_eq!(careful, (0, String::new(), String::new()));
    // To a file, once.
    let file = path.with_file_name("refusals");
    let (code, _, stderr) = run(&["--check", "--refusals", file.to_str().unwrap()], &[]);
    assert_eq!((code, stderr.as_str()), (1, "mkey: 2 findings\n"));
    assert_eq!(told(&fs::read_to_string(&file).unwrap()), "");
}

/// Gives memory back that is registered: an error of pinned memory, and what on-demand memory is for.
const FREES: &str = "
int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	int access = IBV_ACCESS_LOCAL_WRITE | (getenv(\"ODP\") ? IBV_ACCESS_ON_DEMAND : 0);
	char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory + 4096, 8192, access);

	CHECK(mr);
	/* Half of it. */
	CHECK(munmap(memory + 8192, 4096) == 0);
	if (getenv(\"ODP\"))
		CHECK(madvise(memory + 4096, 4096, MADV_DONTNEED) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
";

#[test]
fn memory_that_was_given_back_while_registered_is_a_finding() {
    let test = "memory_that_was_given_back_while_registered_is_a_finding";
    if let Err(unavailable) = mkey_os::events::process() {
        return crate::common::skipped(test, &unavailable.to_string());
    }
    let Some(program) = build_short(test, FREES) else { return };
    let mut command = mkey_run(&["--check"]);
    let (code, _, stderr) = ended(command.arg(program.path()));
    let lines: Vec<_> = stderr.lines().collect();
    let [freed, "mkey: 1 finding"] = &*lines else { panic!("{stderr}") };
    assert_eq!(code, 1);
    assert!(freed.starts_with("mkey: freed: 4096 bytes at 0x"), "{freed}");
    assert!(freed.contains("were unmapped while registered on mkey0, as part of 8192"), "{freed}");
    let on_demand = ended(mkey_run(&["--check"]).arg(program.path()).env("ODP", "1"));
    assert_eq!(on_demand, (0, String::new(), String::new()));
}
