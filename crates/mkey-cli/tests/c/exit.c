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
	struct ibv_sge entry = { (uintptr_t)memory, 64, 0 };
	struct ibv_send_wr wr = { .sg_list = &entry, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	pthread_t thread;

	context = open_first();
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 16, NULL, channel, 0);
	qp = make_qp(pd, cq);
	peer = make_qp(pd, cq);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(channel && mr);
	connect_with(qp, peer->qp_num, 0, 7);
	connect_with(peer, qp->qp_num, 0, 7);
	/* The peer never has a receive: however long this program takes until it ends, work is under way, and
	   a timer runs that is set again and again. An answer that never comes would be told of after a while. */
	entry.lkey = mr->lkey;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
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
