/* Clocks a packet of two other filters on the packets of `bellows bench filter`, in vectors of 128:
 * libpcap's interpreter, and DPDK's machine code made of libpcap's program.
 *
 * filter ROUNDS EXPRESSION MATCHING-SOURCE MATCHING-PORT
 *
 * Prints one JSON object: for "matching", "other" and "mixed" packets, hot (one vector) and with 8,192 packets in
 * flight, the least clocks a packet over all rounds, for each filter; and how many packets matched. */
#include <arpa/inet.h>
#include <pcap/pcap.h>
#include <rte_bpf.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VECTOR = 128, IN_FLIGHT = 8192, FRAME = 64 };

static uint64_t state = 88172645463325252u;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* An Ethernet frame with IPv4 and TCP. */
static void fill(uint8_t *frame, uint32_t source, uint16_t port)
{
	memset(frame, 0, FRAME);
	frame[12] = 8;
	frame[14] = 0x45;
	frame[17] = 50;
	frame[22] = 64;
	frame[23] = 6;
	uint32_t address = htonl(source);
	memcpy(frame + 26, &address, 4);
	address = htonl(0x62000000 | (next_random() & 0xff));
	memcpy(frame + 30, &address, 4);
	frame[34] = 7000 >> 8;
	frame[35] = 7000 & 0xff;
	frame[36] = port >> 8;
	frame[37] = port & 0xff;
}

static struct rte_mbuf *packets[IN_FLIGHT];
static volatile unsigned matched;

static void libpcap_vector(const struct bpf_program *program, unsigned first)
{
	unsigned count = 0;
	for (unsigned i = first; i < first + VECTOR; i++) {
		struct rte_mbuf *packet = packets[i];
		count += bpf_filter(program->bf_insns, rte_pktmbuf_mtod(packet, const u_char *), packet->pkt_len,
				    packet->data_len) != 0;
	}
	matched = count;
}

static void dpdk_vector(const struct rte_bpf_jit *jit, unsigned first)
{
	unsigned count = 0;
	/* What rte_bpf_exec_burst() would do with its interpreter, with the machine code. */
	for (unsigned i = first; i < first + VECTOR; i++)
		count += jit->func(packets[i]) != 0;
	matched = count;
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: filter ROUNDS EXPRESSION MATCHING-SOURCE MATCHING-PORT\n");
		return 2;
	}
	int rounds = atoi(argv[1]);
	uint32_t source = ntohl(inet_addr(argv[3]));
	uint16_t port = atoi(argv[4]);
	char *arguments[] = { "filter", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "-m", "64", "-l", "0", "--log-level=error", NULL };
	if (rte_eal_init(sizeof arguments / sizeof *arguments - 1, arguments) < 0) {
		fprintf(stderr, "filter: DPDK does not start\n");
		return 1;
	}
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, 262144);
	struct bpf_program program;
	if (pcap_compile(pcap, &program, argv[2], 1, PCAP_NETMASK_UNKNOWN) != 0) {
		fprintf(stderr, "filter: libpcap refuses the expression: %s\n", pcap_geterr(pcap));
		return 1;
	}
	struct rte_bpf_prm *parameters = rte_bpf_convert(&program);
	struct rte_bpf *bpf = parameters ? rte_bpf_load(parameters) : NULL;
	struct rte_bpf_jit jit = { 0 };
	if (bpf == NULL || rte_bpf_get_jit(bpf, &jit) != 0 || jit.func == NULL) {
		fprintf(stderr, "filter: DPDK makes no machine code of it\n");
		return 1;
	}
	struct rte_mempool *pool = rte_pktmbuf_pool_create("packets", IN_FLIGHT + 64, 0, 0, 2048, SOCKET_ID_ANY);
	if (pool == NULL || rte_pktmbuf_alloc_bulk(pool, packets, IN_FLIGHT) != 0) {
		fprintf(stderr, "filter: no memory for packets\n");
		return 1;
	}
	static const char *const kinds[] = { "matching", "other", "mixed" };
	printf("{\"expression\": \"%s\"", argv[2]);
	for (int kind = 0; kind < 3; kind++) {
		for (int i = 0; i < IN_FLIGHT; i++) {
			int matches = kind == 0 || (kind == 2 && (next_random() >> 33 & 1));
			uint32_t from = matches ? source : 0x63000000 | (next_random() & 0xff);
			uint16_t to = matches ? port : 6001 + next_random() % 44000;
			rte_pktmbuf_reset(packets[i]);
			fill((uint8_t *)rte_pktmbuf_append(packets[i], FRAME), from, to);
		}
		printf(", \"%s\": {", kinds[kind]);
		for (int flight = 0; flight < 2; flight++) {
			unsigned last = flight ? IN_FLIGHT : VECTOR;
			uint64_t least[2] = { UINT64_MAX, UINT64_MAX };
			unsigned counts[2] = { 0, 0 };
			for (int round = 0; round < rounds; round++) {
				for (int which = 0; which < 2; which++) {
					uint64_t start = rte_rdtsc();
					for (unsigned done = 0; done < IN_FLIGHT; done += VECTOR) {
						if (which == 0)
							libpcap_vector(&program, done % last);
						else
							dpdk_vector(&jit, done % last);
					}
					uint64_t clocks = rte_rdtsc() - start;
					counts[which] = matched;
					if (clocks < least[which])
						least[which] = clocks;
				}
			}
			printf("%s\"%s\": {\"libpcap\": %.2f, \"dpdk\": %.2f, \"matched\": [%u, %u]}", flight ? ", " : "",
			       flight ? "in_flight" : "hot", (double)least[0] / IN_FLIGHT, (double)least[1] / IN_FLIGHT,
			       counts[0], counts[1]);
		}
		printf("}");
	}
	printf("}\n");
	return 0;
}
