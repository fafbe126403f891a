/* Threads, forked children and another program: each by itself. */

struct end {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[4096];
};

static struct ibv_context *context;

static struct end *make_end(void)
{
	struct end *end = calloc(1, sizeof *end);

	CHECK(end);
	end->pd = ibv_alloc_pd(context);
	end->cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(end->pd && end->cq);
	end->qp = make_qp(end->pd, end->cq);
	connect_to(end->qp, end->qp->qp_num);
	end->mr = ibv_reg_mr(end->pd, end->memory, sizeof end->memory,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(end->mr);
	return end;
}

static void *writes(void *unused)
{
	struct end *end = make_end();

	for (int at = 0; at < 1000; at++) {
		CHECK(write_to(end->qp, end->mr, 8, (uintptr_t)end->memory + 64, end->mr->rkey) == 0);
		CHECK(polled(end->cq) == IBV_WC_SUCCESS);
	}
	return unused;
}

int main(int count, char **arguments)
{
	pthread_t threads[4];
	struct end *end;
	int status;

	context = open_first();
	if (count > 1) {
		/* What the child became. */
		CHECK(ibv_alloc_pd(context));
		return 0;
	}
	end = make_end();
	for (int at = 0; at < 4; at++)
		CHECK(pthread_create(&threads[at], NULL, writes, NULL) == 0);
	for (int at = 0; at < 4; at++)
		CHECK(pthread_join(threads[at], NULL) == 0);
	for (int at = 0; at < 3; at++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			/* Of the parent's nothing is told, be it refused or not. */
			struct ibv_wc wc;

			CHECK(write_to(end->qp, end->mr, 8, (uintptr_t)end->memory, end->mr->rkey) != 0);
			ibv_poll_cq(end->cq, 1, &wc);
			CHECK(ibv_alloc_pd(context) == NULL);
			if (at == 0) {
				struct ibv_context *parents = context;

				context = open_first();
				CHECK(write_to(end->qp, end->mr, 8, (uintptr_t)end->memory, end->mr->rkey) != 0);
				ibv_poll_cq(end->cq, 1, &wc);
				CHECK(ibv_dereg_mr(end->mr) == 0);
				CHECK(ibv_destroy_qp(end->qp) == 0);
				end = make_end();
				CHECK(ibv_close_device(parents) == 0);
				CHECK(write_to(end->qp, end->mr, 8, (uintptr_t)end->memory, end->mr->rkey) == 0);
				CHECK(polled(end->cq) == IBV_WC_SUCCESS);
				exit(0);
			}
			if (at == 1)
				execl(arguments[0], arguments[0], "again", NULL);
			_exit(at == 1);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	CHECK(write_to(end->qp, end->mr, 8, (uintptr_t)end->memory, end->mr->rkey) == 0);
	CHECK(polled(end->cq) == IBV_WC_SUCCESS);
	if (getenv("KILLED"))
		kill(getpid(), SIGKILL);
	puts("well");
	return 0;
}
