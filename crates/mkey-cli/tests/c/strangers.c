/* Objects of another open device, of the same kind and number as those that belong there. */

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_td *td;
	struct ibv_cq *cq;
	struct ibv_qp *qp, *datagram;
	struct ibv_mr *mr;
	struct ibv_mw *mw, *plain_mw;
	struct ibv_ah *ah;
};

static char memory[8192];

/* A queue pair for datagrams, or an extended one, that sends. */
static struct ibv_qp *sending(struct side *side, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = side->cq, .recv_cq = side->cq, .qp_type = type,
					    .cap = { 16, 16, 2, 2, 64 }, .pd = side->pd,
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
	struct ibv_qp *qp;

	init.send_ops_flags = type == IBV_QPT_UD ? IBV_QP_EX_WITH_SEND :
						   IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_RDMA_WRITE;
	qp = ibv_create_qp_ex(side->context, &init);
	CHECK(qp);
	if (type == IBV_QPT_UD) {
		CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
		attr.qp_state = IBV_QPS_RTR;
		CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
		attr.qp_state = IBV_QPS_RTS;
		CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	} else {
		CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS) == 0);
		connect_to(qp, qp->qp_num);
	}
	return qp;
}

static struct side make_side(void)
{
	struct side side = { .context = open_first() };
	struct ibv_td_init_attr td = { 0 };
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };

	side.pd = ibv_alloc_pd(side.context);
	side.td = ibv_alloc_td(side.context, &td);
	side.cq = ibv_create_cq(side.context, 64, NULL, NULL, 0);
	side.mr = ibv_reg_mr(side.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			     IBV_ACCESS_MW_BIND);
	side.mw = ibv_alloc_mw(side.pd, IBV_MW_TYPE_2);
	side.plain_mw = ibv_alloc_mw(side.pd, IBV_MW_TYPE_1);
	CHECK(ibv_query_gid(side.context, 1, 0, &attr.grh.dgid) == 0);
	side.ah = ibv_create_ah(side.pd, &attr);
	CHECK(side.td && side.cq && side.mr && side.mw && side.plain_mw && side.ah);
	side.qp = sending(&side, IBV_QPT_RC);
	side.datagram = sending(&side, IBV_QPT_UD);
	return side;
}

static void making(struct side *own, struct side *other)
{
	struct ibv_qp_init_attr_ex qp = { .send_cq = own->cq, .recv_cq = own->cq, .qp_type = IBV_QPT_RC,
					  .cap = { 1, 1, 1, 1, 0 }, .pd = other->pd,
					  .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
	struct ibv_parent_domain_init_attr parent = { .pd = other->pd };
	struct ibv_cq_init_attr_ex cq = { .cqe = 4, .parent_domain = other->pd,
					  .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_srq_init_attr_ex srq = { .attr = { 4, 1, 0 }, .srq_type = IBV_SRQT_BASIC, .pd = other->pd,
					    /* Without the last it would be the plain verb, which has no device. */
					    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
							 IBV_SRQ_INIT_ATTR_CQ };

	CHECK(own->pd->handle == other->pd->handle && own->mr->handle == other->mr->handle);
	CHECK(ibv_create_qp_ex(own->context, &qp) == NULL && errno == EINVAL);
	qp.pd = own->pd;
	qp.send_cq = other->cq;
	CHECK(ibv_create_qp_ex(own->context, &qp) == NULL && errno == EINVAL);
	CHECK(ibv_alloc_parent_domain(own->context, &parent) == NULL && errno == EINVAL);
	parent.pd = own->pd;
	parent.td = other->td;
	CHECK(ibv_alloc_parent_domain(own->context, &parent) == NULL && errno == EINVAL);
	/* Neither was counted as in use. */
	CHECK(ibv_dealloc_td(other->td) == 0);
	CHECK(ibv_create_cq_ex(own->context, &cq) == NULL && errno == EINVAL);
	CHECK(ibv_create_srq_ex(own->context, &srq) == NULL && errno == EINVAL);
	CHECK(ibv_rereg_mr(own->mr, IBV_REREG_MR_CHANGE_PD, other->pd, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(errno == EINVAL && own->mr->pd == own->pd);
}

static void posting(struct side *own, struct side *other)
{
	struct ibv_sge entry = { (uintptr_t)memory, 8, own->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &entry, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_mw_bind plain = { .bind_info = { own->mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_WRITE } };
	uint32_t key = own->mw->rkey, others = other->mw->rkey;
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(own->qp), *datagram = ibv_qp_to_qp_ex(own->datagram);
	struct ibv_wc wc;

	wr.wr.ud.ah = other->ah;
	wr.wr.ud.remote_qpn = own->datagram->qp_num;
	wr.wr.ud.remote_qkey = 1;
	CHECK(ibv_post_send(own->datagram, &wr, &bad) == EINVAL && bad == &wr);
	ibv_wr_start(datagram);
	ibv_wr_send(datagram);
	ibv_wr_set_sge(datagram, own->mr->lkey, (uintptr_t)memory, 8);
	ibv_wr_set_ud_addr(datagram, other->ah, own->datagram->qp_num, 1);
	CHECK(ibv_wr_complete(datagram) == EINVAL);

	/* The window, then the region behind it. */
	wr = (struct ibv_send_wr){ .opcode = IBV_WR_BIND_MW };
	wr.bind_mw.mw = other->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(others);
	wr.bind_mw.bind_info = plain.bind_info;
	CHECK(ibv_post_send(own->qp, &wr, &bad) == EINVAL && other->mw->rkey == others);
	wr.bind_mw.mw = own->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(key);
	wr.bind_mw.bind_info.mr = other->mr;
	CHECK(ibv_post_send(own->qp, &wr, &bad) == EINVAL && own->mw->rkey == key);
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, other->mw, ibv_inc_rkey(others), &plain.bind_info);
	CHECK(ibv_wr_complete(qp) == EINVAL && other->mw->rkey == others);
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, own->mw, ibv_inc_rkey(key), &wr.bind_mw.bind_info);
	CHECK(ibv_wr_complete(qp) == EINVAL && own->mw->rkey == key);
	/* Of another domain: the inline function sees that by itself. With one of both, we do. */
	CHECK(ibv_bind_mw(own->qp, other->plain_mw, &plain) != 0);
	plain.bind_info.mr = other->mr;
	CHECK(ibv_bind_mw(own->qp, own->plain_mw, &plain) != 0);
	CHECK(ibv_bind_mw(own->qp, other->plain_mw, &plain) == EINVAL);
	CHECK(ibv_poll_cq(own->cq, 1, &wc) == 0 && ibv_poll_cq(other->cq, 1, &wc) == 0);
}

int main(void)
{
	struct side one = make_side(), two = make_side();

	making(&one, &two);
	posting(&one, &two);
	posting(&two, &one);
	CHECK(ibv_close_device(one.context) == 0 && ibv_close_device(two.context) == 0);
	puts("well");
	return 0;
}
