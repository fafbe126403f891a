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

/* What a work request names has to be there, and the queue pair has to be in a state that takes it. */
static void wrong_work(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context), *other_pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	static char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_mr *other = ibv_reg_mr(other_pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *gone = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	uint32_t gone_key = gone->lkey;
	/* Of nobody, of another domain, of a region that has ended, one past the end of a region. */
	struct ibv_sge wrong[] = {
		{ (uintptr_t)memory, 8, 0x12345600 },
		{ (uintptr_t)memory, 8, other->lkey },
		{ (uintptr_t)memory, 8, gone_key },
		{ (uintptr_t)memory + sizeof memory - 7, 8, mr->lkey },
		{ (uintptr_t)memory - 1, 8, mr->lkey },
		{ UINT64_MAX - 3, 8, mr->lkey },
	};
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET }, rts = { .qp_state = IBV_QPS_RTS };
	struct ibv_recv_wr receive = { .wr_id = 2 }, *bad_receive;

	CHECK(ibv_dereg_mr(gone) == 0);
	for (size_t at = 0; at < sizeof wrong / sizeof wrong[0]; at++) {
		struct ibv_qp *qp = make_qp(pd, cq), *peer = make_qp(pd, cq);
		struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &wrong[at], .num_sge = 1,
					  .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

		connect_to(qp, peer->qp_num);
		connect_to(peer, qp->qp_num);
		CHECK(ibv_post_send(qp, &wr, &bad) == 0);
		CHECK(polled(cq) == IBV_WC_LOC_PROT_ERR);
		/* In ERR all is flushed. */
		CHECK(ibv_post_recv(qp, &receive, &bad_receive) == 0 && polled(cq) == IBV_WC_WR_FLUSH_ERR);
		CHECK(ibv_post_send(qp, &wr, &bad) == 0 && polled(cq) == IBV_WC_WR_FLUSH_ERR);
		/* RESET takes nothing, and is not left for RTS. */
		CHECK(ibv_modify_qp(qp, &reset, IBV_QP_STATE) == 0);
		CHECK(ibv_post_recv(qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
		CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
		CHECK(ibv_modify_qp(qp, &rts, IBV_QP_STATE) == EINVAL);
		CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(peer) == 0);
	}
	/* A receive into memory that may not be written: both sides hear of it. */
	{
		struct ibv_qp *qp = make_qp(pd, cq), *peer = make_qp(pd, cq);
		struct ibv_cq *own = ibv_create_cq(context, 4, NULL, NULL, 0);
		struct ibv_qp *sender = make_qp(pd, own);
		struct ibv_sge entry = { (uintptr_t)memory, 8, mr->lkey };
		struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &entry, .num_sge = 1,
					  .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_recv_wr into = { .wr_id = 3, .sg_list = &wrong[0], .num_sge = 1 };

		CHECK(ibv_destroy_qp(qp) == 0);
		connect_to(sender, peer->qp_num);
		connect_to(peer, sender->qp_num);
		CHECK(ibv_post_recv(peer, &into, &bad_receive) == 0);
		CHECK(ibv_post_send(sender, &wr, &bad) == 0);
		CHECK(polled(own) == IBV_WC_REM_OP_ERR);
		CHECK(polled(cq) == IBV_WC_LOC_PROT_ERR);
	}
	/* A datagram to nowhere. */
	{
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
						 .cap = { 16, 16, 2, 2, 0 } };
		struct ibv_qp *qp = ibv_create_qp(pd, &init);
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
		struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };
		struct ibv_sge entry = { (uintptr_t)memory, 8, mr->lkey };
		struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &entry, .num_sge = 1,
					  .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_ah *ah;

		CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
		attr.qp_state = IBV_QPS_RTR;
		CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
		attr.qp_state = IBV_QPS_RTS;
		CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
		CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL);
		CHECK(ibv_query_gid(context, 1, 0, &to.grh.dgid) == 0);
		ah = ibv_create_ah(pd, &to);
		CHECK(ah);
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = 0xabcdef;
		wr.wr.ud.remote_qkey = 1;
		CHECK(ibv_post_send(qp, &wr, &bad) == 0 && polled(cq) == IBV_WC_SUCCESS);
		CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_ah(ah) == EINVAL);
		CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
	}
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
	wrong_work();
	many();
	puts("well");
	return 0;
}
