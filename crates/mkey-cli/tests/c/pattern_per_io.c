/* Registers for each I/O, on the same eight buffers; after: each buffer once. */
enum { BUFFERS = 8, LENGTH = 65536, ROUNDS = 3000 };

int main(void)
{
	struct link link = make_link();
	struct ibv_mr *kept[BUFFERS] = { 0 };
	char *buffers[BUFFERS];

	for (int n = 0; n < BUFFERS; n++)
		buffers[n] = touched(LENGTH);
	for (int round = 0; round < ROUNDS; round++) {
		int n = round % BUFFERS;
		struct ibv_mr *mr = kept[n] ? kept[n] : reg(link.pd, buffers[n], LENGTH);

		send_from(&link, mr, buffers[n], LENGTH);
		if (is_after())
			kept[n] = mr;
		else
			dereg(mr);
	}
	for (int n = 0; n < BUFFERS; n++)
		if (kept[n])
			dereg(kept[n]);
	return done();
}
