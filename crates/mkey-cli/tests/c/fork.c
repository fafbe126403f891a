static struct ibv_context *context;
static volatile int stop;
/* Opened and closed without a pause. */
static struct ibv_context *volatile fleeting;

static void *opens(void *unused)
{
	while (!stop) {
		/* Not listed anew: libibverbs itself holds a lock for that, which a child would wait for. */
		struct ibv_context *now = ibv_open_device(context->device);

		CHECK(now);
		fleeting = now;
		CHECK(ibv_close_device(now) == 0);
	}
	return unused;
}

/* Registers and posts without a pause. */
static void *busy(void *unused)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *one = make_qp(pd, cq), *two = make_qp(pd, cq);
	static char memory[3][8192];
	static int next;
	char *mine = memory[__sync_fetch_and_add(&next, 1)];

	(void)unused;
	connect_to(one, two->qp_num);
	connect_to(two, one->qp_num);
	for (int round = 0; !stop; round++) {
		struct ibv_qp *more = round % 4 ? NULL : make_qp(pd, cq);
		struct ibv_mr *mr = ibv_reg_mr(pd, mine, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

		CHECK(mr);
		CHECK(write_to(one, mr, 64, (uintptr_t)mine + 4096, mr->rkey) == 0);
		CHECK(polled(cq) == IBV_WC_SUCCESS);
		CHECK(ibv_dereg_mr(mr) == 0);
		CHECK(!more || ibv_destroy_qp(more) == 0);
	}
	return NULL;
}

/* What the parent has is not the child's; what the child opens is. */
static void child(struct ibv_pd *pd, struct ibv_mr *mr, struct ibv_qp *qp)
{
	struct ibv_context *own = open_first();
	struct ibv_pd *own_pd = ibv_alloc_pd(own);
	struct ibv_cq *cq = ibv_create_cq(own, 4, NULL, NULL, 0);
	static char memory[4096];
	struct ibv_alloc_dm_attr dm = { .length = 64 };
	struct ibv_device_attr attr;
	struct ibv_dm *made;
	struct ibv_mr *own_mr = ibv_reg_mr(own_pd, memory, sizeof memory,
					   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp *one = make_qp(own_pd, cq), *two = make_qp(own_pd, cq);

	CHECK(own_mr);
	connect_to(one, two->qp_num);
	connect_to(two, one->qp_num);
	strcpy(memory, "written by the child");
	CHECK(write_to(one, own_mr, 32, (uintptr_t)memory + 64, own_mr->rkey) == 0);
	CHECK(polled(cq) == IBV_WC_SUCCESS);
	CHECK(strcmp(memory + 64, "written by the child") == 0);

	CHECK(write_to(qp, mr, 8, (uintptr_t)mr->addr, mr->rkey) != 0);
	CHECK(ibv_reg_mr(pd, memory, 64, 0) == NULL && errno == EPERM);
	CHECK(ibv_alloc_mw(pd, IBV_MW_TYPE_1) == NULL && errno == EPERM);
	/* Device memory is each process's own. */
	made = ibv_alloc_dm(context, &dm);
	CHECK(made && ibv_free_dm(made) == 0);
	CHECK(ibv_reg_dm_mr(pd, made, 0, 64, IBV_ACCESS_ZERO_BASED) == NULL && errno == EPERM);
	CHECK(ibv_query_device(context, &attr) == 0);
	/* A thread of the parent's was about to close it, or had closed it, or neither. */
	if (fleeting)
		ibv_query_device(fleeting, &attr);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
}

int main(void)
{
	pthread_t threads[2], opener;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp, *peer;
	struct ibv_mr *mr;
	static char memory[4096];
	int children;

	context = open_first();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	qp = make_qp(pd, cq);
	peer = make_qp(pd, cq);
	connect_to(qp, peer->qp_num);
	connect_to(peer, qp->qp_num);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(pd && cq && mr);
	for (int at = 0; at < 2; at++)
		CHECK(pthread_create(&threads[at], NULL, busy, NULL) == 0);
	CHECK(pthread_create(&opener, NULL, opens, NULL) == 0);
	for (children = 0; children < 200; children++) {
		pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (pid == 0) {
			/* A child that hangs is killed by this, and then counts as failed. */
			alarm(60);
			child(pd, mr, qp);
			/* Every other one runs the program's handlers at its end. */
			if (children % 2)
				exit(0);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		strcpy(memory, "still the parent's");
		CHECK(write_to(qp, mr, 32, (uintptr_t)memory + 64, mr->rkey) == 0);
		CHECK(polled(cq) == IBV_WC_SUCCESS);
		CHECK(strcmp(memory + 64, "still the parent's") == 0);
		memset(memory, 0, sizeof memory);
	}
	stop = 1;
	for (int at = 0; at < 2; at++)
		CHECK(pthread_join(threads[at], NULL) == 0);
	CHECK(pthread_join(opener, NULL) == 0);
	printf("%d children\n", children);
	return 0;
}
