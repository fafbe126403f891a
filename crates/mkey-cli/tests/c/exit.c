static struct ibv_context *context;

static void *waits(void *unused)
{
	struct ibv_async_event event;

	ibv_get_async_event(context, &event);
	return unused;
}

static void *ends(void *unused)
{
	exit(8);
	return unused;
}

int main(void)
{
	const char *how = getenv("HOW");
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp, *peer;
	static char memory[8192];
	struct ibv_mr *mr;
	pthread_t thread;

	context = open_first();
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 16, NULL, channel, 0);
	qp = make_qp(pd, cq);
	peer = make_qp(pd, cq);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(channel && mr);
	connect_to(qp, peer->qp_num);
	/* The peer does not answer: work is under way, and a timer runs. */
	CHECK(write_to(qp, mr, 64, (uintptr_t)memory + 4096, mr->rkey) == 0);
	CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
	if (strcmp(how, "exit") == 0)
		exit(5);
	if (strcmp(how, "_exit") == 0)
		_exit(6);
	if (strcmp(how, "thread") == 0) {
		CHECK(pthread_create(&thread, NULL, ends, NULL) == 0);
		pthread_join(thread, NULL);
	}
	return 7;
}
