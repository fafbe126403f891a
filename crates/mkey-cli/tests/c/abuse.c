/* Ended objects, wrong states, wrong arguments: an errno each. */
static void ended_objects(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
	struct ibv_qp *qp = make_qp(pd, cq);
	static char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_recv_wr receive = { .wr_id = 1 }, *bad;
	struct ibv_wc wc;

	CHECK(mr && mw);
	/* In use. */
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_destroy_cq(cq) == EBUSY);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	/* Twice, and after. */
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(mr) == EINVAL);
	CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(mw) == EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(qp) == EINVAL);
	CHECK(ibv_post_recv(qp, &receive, &bad) == EINVAL && bad == &receive);
	CHECK(write_to(qp, mr, 8, 0, 0) == EINVAL);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(cq) == EINVAL);
	CHECK(ibv_poll_cq(cq, 1, &wc) < 0);
	CHECK(ibv_req_notify_cq(cq, 0) == EINVAL);
	CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_destroy_comp_channel(channel) == EINVAL);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_dealloc_pd(pd) == EINVAL);
	CHECK(ibv_alloc_mw(pd, IBV_MW_TYPE_1) == NULL && errno == EINVAL);
	CHECK(ibv_close_device(context) == 0 && ibv_close_device(context) == EINVAL);
	CHECK(ibv_alloc_pd(context) == NULL && errno == EINVAL);
}

/* All that is of a device ends with it, descriptors as well. */
static void closed_device(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
	struct ibv_qp *qp = make_qp(pd, cq);
	static char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	int async = context->async_fd, events = channel->fd, command = context->cmd_fd;
	struct ibv_recv_wr receive = { .wr_id = 1 }, *bad;
	struct ibv_wc wc;

	CHECK(fcntl(async, F_GETFD) >= 0 && fcntl(events, F_GETFD) >= 0 && fcntl(command, F_GETFD) >= 0);
	CHECK(ibv_close_device(context) == 0);
	CHECK(fcntl(async, F_GETFD) == -1 && errno == EBADF);
	CHECK(fcntl(events, F_GETFD) == -1 && errno == EBADF);
	CHECK(fcntl(command, F_GETFD) == -1 && errno == EBADF);
	CHECK(ibv_post_recv(qp, &receive, &bad) == EINVAL);
	CHECK(ibv_poll_cq(cq, 1, &wc) < 0);
	CHECK(ibv_dereg_mr(mr) == EINVAL);
	CHECK(ibv_destroy_qp(qp) == EINVAL);
	CHECK(ibv_destroy_cq(cq) == EINVAL);
}

static void wrong_arguments(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(pd, cq), *peer = make_qp(pd, cq);
	static char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge entries[40] = { { (uintptr_t)memory, 8, mr->lkey } };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = entries, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = entries, .num_sge = 3 }, *bad_receive;
	struct ibv_ah_attr local = { .port_num = 1, .dlid = 5 };
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET,
					 .cap = { 1, 1, 1, 1, 0 } };

	CHECK(ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_WRITE) == NULL && errno == EINVAL);
	CHECK(ibv_reg_mr(pd, memory, 64, 1 << 17) == NULL && errno == EINVAL);
	CHECK(ibv_reg_mr(pd, (void *)4096, 64, 0) == NULL && errno == EFAULT);
	CHECK(ibv_query_port(context, 2, &port) == EINVAL);
	CHECK(ibv_query_gid(context, 1, 400, &gid) == -1);
	CHECK(ibv_create_ah(pd, &local) == NULL && errno == EINVAL);
	CHECK(ibv_create_qp(pd, &init) == NULL && errno == EOPNOTSUPP);
	CHECK(ibv_create_cq(context, 16, NULL, NULL, context->num_comp_vectors) == NULL && errno == EINVAL);
	CHECK(ibv_import_pd(context, 1) == NULL && errno == EOPNOTSUPP);
	CHECK(ibv_import_mr(pd, 1) == NULL && errno == EOPNOTSUPP);
	CHECK(ibv_import_device(context->cmd_fd) == NULL && errno == EOPNOTSUPP);
	CHECK(ibv_attach_mcast(qp, &gid, 0) == EOPNOTSUPP);
	/* INIT takes receives, and no sends. */
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
	CHECK(ibv_post_recv(qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
	connect_to(qp, peer->qp_num);
	connect_to(peer, qp->qp_num);
	wr.num_sge = 3;
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL);
	wr.num_sge = -1;
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL);
	wr.num_sge = 1;
	wr.opcode = IBV_WR_TSO;
	CHECK(ibv_post_send(qp, &wr, &bad) == EOPNOTSUPP);
	/* Inline data from nowhere. */
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_INLINE;
	entries[0] = (struct ibv_sge){ 4096, 8, 0 };
	CHECK(ibv_post_send(qp, &wr, &bad) == EFAULT);
	/* A list whose second element is wrong: the first is on its way. */
	entries[0] = (struct ibv_sge){ (uintptr_t)memory, 8, mr->lkey };
	{
		struct ibv_send_wr two = wr, one = wr;

		one.send_flags = IBV_SEND_SIGNALED;
		one.next = &two;
		two.num_sge = 7;
		two.send_flags = 0;
		receive.num_sge = 1;
		CHECK(ibv_post_recv(peer, &receive, &bad_receive) == 0);
		CHECK(ibv_post_send(qp, &one, &bad) == EINVAL && bad == &two);
		CHECK(polled(cq) == IBV_WC_SUCCESS && polled(cq) == IBV_WC_SUCCESS);
	}
	/* Data from nowhere: the completion tells. */
	wr.send_flags = IBV_SEND_SIGNALED;
	entries[0] = (struct ibv_sge){ 4096, 8, mr->lkey };
	CHECK(ibv_post_recv(peer, &receive, &bad_receive) == 0);
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	CHECK(polled(cq) == IBV_WC_LOC_PROT_ERR);
	CHECK(ibv_close_device(context) == 0);
}

/* More objects, made and ended in turn, than rest at a time. */
static void many(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	static char memory[4096];

	for (int round = 0; round < 5000; round++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, 64, 0);

		CHECK(mr && mr->pd == pd && mr->addr == memory);
		CHECK(ibv_dereg_mr(mr) == 0);
	}
	for (int round = 0; round < 300; round++) {
		struct ibv_context *other = open_first();

		CHECK(other != context && ibv_alloc_pd(other));
		CHECK(ibv_close_device(other) == 0);
	}
	CHECK(ibv_close_device(context) == 0);
}

int main(void)
{
	ended_objects();
	closed_device();
	wrong_arguments();
	many();
	puts("well");
	return 0;
}
