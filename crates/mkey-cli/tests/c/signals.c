static volatile sig_atomic_t handled;

static void handler(int signal)
{
	(void)signal;
	handled = 1;
}

static void *sends(void *target)
{
	usleep(200000);
	pthread_kill(*(pthread_t *)target, SIGUSR2);
	return NULL;
}

int main(void)
{
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *of;
	struct ibv_qp *qp, *peer;
	static char memory[8192];
	struct ibv_mr *mr;
	struct sigaction action = { .sa_handler = handler };
	pthread_t thread, here = pthread_self();
	sigset_t wanted;
	void *unused;
	int signal;

	context = open_first();
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 16, NULL, channel, 0);
	qp = make_qp(pd, cq);
	peer = make_qp(pd, cq);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	/* Threads for timers and for what is unmapped run by now. */
	connect_to(qp, peer->qp_num);
	CHECK(write_to(qp, mr, 64, (uintptr_t)memory + 4096, mr->rkey) == 0);
	CHECK(polled(cq) == IBV_WC_RETRY_EXC_ERR);

	/* Only this thread is to have it, and it waits for it. */
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGUSR1);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_sigmask(SIG_BLOCK, &wanted, NULL) == 0);
	for (int round = 0; round < 100; round++) {
		CHECK(kill(getpid(), SIGUSR1) == 0);
		CHECK(sigwait(&wanted, &signal) == 0 && signal == SIGUSR1);
	}
	CHECK(!handled);

	/* A handler ends a wait for events, as of any descriptor. */
	CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, sends, &here) == 0);
	CHECK(ibv_get_cq_event(channel, &of, &unused) == -1 && errno == EINTR);
	CHECK(handled);
	puts("taken");
	return 0;
}
