/* Registers known memory at known places: what `mkey trace` has to tell of. By argument it ends well, is killed,
 * forks, starts itself again, or goes on until it is told to end. */
static char small_one[4096] __attribute__((aligned(4096)));

__attribute__((noinline)) static struct ibv_mr *register_small(struct ibv_pd *pd)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, small_one, sizeof small_one, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	return mr;
}

__attribute__((noinline)) static struct ibv_mr *register_big(struct ibv_pd *pd, void *room, size_t size)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, room, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	return mr;
}

static volatile sig_atomic_t told;

static void tell(int signal)
{
	(void)signal;
	told = 1;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	size_t size = 4 << 20;
	void *room = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_mr *small, *big;
	struct ibv_qp *a, *b;

	CHECK(room != MAP_FAILED && pd && cq);
	memset(room, 1, size);
	printf("begins\n");
	fflush(stdout);
	small = register_small(pd);
	/* The same memory again and again. */
	for (int i = 0; i < 3; i++)
		CHECK(ibv_dereg_mr(register_big(pd, room, size)) == 0);
	big = register_big(pd, room, size);
	a = make_qp(pd, cq);
	b = make_qp(pd, cq);
	connect_to(a, b->qp_num);
	connect_to(b, a->qp_num);
	for (int i = 0; i < 5; i++) {
		CHECK(write_to(a, small, 64, (uintptr_t)big->addr + 4096 * i, big->rkey) == 0);
		CHECK(polled(cq) == IBV_WC_SUCCESS);
	}
	/* It fails: there is no such memory. */
	CHECK(!ibv_reg_mr(pd, (void *)4096, 4096, IBV_ACCESS_LOCAL_WRITE));
	if (!strcmp(what, "killed"))
		raise(SIGKILL);
	if (!strcmp(what, "crashed"))
		raise(SIGSEGV);
	if (!strcmp(what, "fork")) {
		pid_t child = fork();
		if (child == 0) {
			struct ibv_pd *own = ibv_alloc_pd(open_first());
			CHECK(own);
			register_small(own);
			exit(0);
		}
		CHECK(waitpid(child, NULL, 0) == child);
	}
	if (!strcmp(what, "exec"))
		execl("/proc/self/exe", argv[0], "again", NULL);
	if (!strcmp(what, "waits")) {
		signal(SIGTERM, tell);
		printf("waits\n");
		fflush(stdout);
		while (!told)
			usleep(1000);
	}
	/* `big` is left registered. */
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	CHECK(ibv_dereg_mr(small) == 0);
	printf("ends\n");
	return 5;
}
