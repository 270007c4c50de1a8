/* Two other filters, which `cargo xtask peers filter` compares with Bellows: libpcap's interpreter, and machine code that
 * DPDK makes of libpcap's program.
 *
 *   filter libpcap|dpdk PROCESSOR EXPRESSION CAPTURE...
 *
 * Takes turns with other processes by the protocol of crates/measure/lab/src/workers.rs: one turn per request, answered by a line
 * of JSON with the clocks a packet for each capture of at least 8,192 packets, first with one vector of 128 packets and
 * then with 8,192 in flight. At the end it checks that both filters agree on every packet.
 *
 * The packets are in buffers of DPDK, on transparent huge pages like those of Bellows. */
#define _GNU_SOURCE
#include <pcap/pcap.h>
#include <rte_bpf.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { VECTOR = 128, IN_FLIGHT = 8192, SLICES = 12, MAX_CAPTURES = 3, HUGE_PAGE = 2 << 20 };

static struct bpf_program program;
static struct rte_bpf_jit jit;
static struct rte_mbuf *packets[MAX_CAPTURES][IN_FLIGHT];
static volatile unsigned matched;

/* A mistake of the caller, as opposed to a filter that cannot take part. */
static void mistake(const char *what, const char *why)
{
	fprintf(stderr, "filter: %s: %s\n", what, why);
	exit(2);
}

/* The answer of a filter that cannot take part. */
static void refuse(const char *why)
{
	printf("{\"machine\":null,\"outcome\":{\"Err\":\"");
	for (; *why; why++)
		putchar(*why == '"' || *why == '\\' ? '\'' : *why);
	printf("\"}}\n");
	exit(0);
}

static bool libpcap_matches(const struct rte_mbuf *packet)
{
	return bpf_filter(program.bf_insns, rte_pktmbuf_mtod(packet, const u_char *), packet->pkt_len, packet->data_len) != 0;
}

static void libpcap_vector(struct rte_mbuf **vector)
{
	unsigned count = 0;
	for (unsigned i = 0; i < VECTOR; i++)
		count += libpcap_matches(vector[i]);
	matched = count;
}

/* What rte_bpf_exec_burst() does with its interpreter, with the machine code. */
static void dpdk_vector(struct rte_mbuf **vector)
{
	unsigned count = 0;
	for (unsigned i = 0; i < VECTOR; i++)
		count += jit.func(vector[i]) != 0;
	matched = count;
}

typedef void decide(struct rte_mbuf **vector);

/* Decides IN_FLIGHT packets, of which the first `in_flight` are different ones. */
static void pass(decide *decide, struct rte_mbuf **all, unsigned in_flight)
{
	for (unsigned done = 0; done < IN_FLIGHT; done += VECTOR)
		decide(all + done % in_flight);
}

static int by_size(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;
	return (difference > 0) - (difference < 0);
}

/* Clocks a packet of the median slice. */
static double slices(decide *decide, struct rte_mbuf **all, unsigned in_flight, double *took, double *lost)
{
	double clocks[SLICES];
	/* Untimed, to reload the data that other processes evicted from the caches. */
	pass(decide, all, in_flight);
	for (int slice = 0; slice < SLICES; slice++) {
		uint64_t start = rte_rdtsc();
		pass(decide, all, in_flight);
		clocks[slice] = rte_rdtsc() - start;
		*took += clocks[slice];
	}
	qsort(clocks, SLICES, sizeof *clocks, by_size);
	double median = (clocks[SLICES / 2 - 1] + clocks[SLICES / 2]) / 2;
	for (int slice = 0; slice < SLICES; slice++)
		if (clocks[slice] > 2 * median)
			*lost += clocks[slice] - median;
	return median / IN_FLIGHT;
}

/* Packets as a DPDK pool lays them out on huge pages. A pool itself would put each on a small page of its own, for without
 * hugetlbfs it takes its memory for small pages. */
static void create_packets(struct rte_mbuf **into, unsigned count)
{
	static char *memory;
	static size_t used, length = (size_t)64 << 20;
	static struct rte_mempool *pool;
	const size_t header = sizeof(struct rte_mempool_objhdr), element = sizeof(struct rte_mbuf) + RTE_MBUF_DEFAULT_BUF_SIZE;
	if (memory == NULL) {
		struct rte_pktmbuf_pool_private room = { .mbuf_data_room_size = RTE_MBUF_DEFAULT_BUF_SIZE };
		pool = rte_mempool_create_empty("packets", count, element, 0, sizeof room, SOCKET_ID_ANY, 0);
		memory = aligned_alloc(HUGE_PAGE, length);
		if (pool == NULL || memory == NULL)
			mistake("DPDK", "has no memory for packets");
		rte_pktmbuf_pool_init(pool, &room);
		madvise(memory, length, MADV_HUGEPAGE);
		memset(memory, 0, length);
	}
	for (unsigned i = 0; i < count; i++, used += RTE_CACHE_LINE_ROUNDUP(header + element)) {
		if (used + header + element > length)
			mistake("DPDK", "has too little memory for packets");
		into[i] = (struct rte_mbuf *)(memory + used + header);
		rte_pktmbuf_init(pool, NULL, into[i], i);
		rte_pktmbuf_reset(into[i]);
	}
}

static void read_capture(const char *path, struct rte_mbuf **into)
{
	char why[PCAP_ERRBUF_SIZE];
	pcap_t *capture = pcap_open_offline(path, why);
	if (capture == NULL)
		mistake(path, why);
	for (int i = 0; i < IN_FLIGHT; i++) {
		struct pcap_pkthdr *header;
		const u_char *bytes;
		if (pcap_next_ex(capture, &header, &bytes) != 1)
			mistake(path, "has fewer than 8,192 packets");
		char *room = rte_pktmbuf_append(into[i], header->caplen);
		if (room == NULL)
			mistake(path, "has packets that fit into no buffer");
		memcpy(room, bytes, header->caplen);
	}
	pcap_close(capture);
}

int main(int argc, char **argv)
{
	int captures = argc - 4;
	bool is_dpdk = argc > 1 && strcmp(argv[1], "dpdk") == 0;
	if (captures < 1 || captures > MAX_CAPTURES || (!is_dpdk && strcmp(argv[1], "libpcap") != 0))
		mistake("usage", "filter libpcap|dpdk PROCESSOR EXPRESSION CAPTURE...");
	decide *decide = is_dpdk ? dpdk_vector : libpcap_vector;
	/* The first line is the task, which the arguments have already given; each further line requests a turn. */
	char *line = NULL;
	size_t size = 0;
	if (getline(&line, &size, stdin) < 0)
		return 0;

	char *options[] = { "filter", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", "64",
			    "--lcores", argv[2], "--log-level=error" };
	if (rte_eal_init(sizeof options / sizeof *options, options) < 0)
		mistake("DPDK", "does not start");
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, 262144);
	if (pcap_compile(pcap, &program, argv[3], 1, PCAP_NETMASK_UNKNOWN) != 0)
		refuse(pcap_geterr(pcap));
	struct rte_bpf_prm *parameters = rte_bpf_convert(&program);
	struct rte_bpf *bpf = parameters ? rte_bpf_load(parameters) : NULL;
	bool has_code = bpf != NULL && rte_bpf_get_jit(bpf, &jit) == 0 && jit.func != NULL;
	if (is_dpdk && !has_code)
		refuse("DPDK makes no machine code of libpcap's program");
	for (int i = 0; i < captures; i++) {
		create_packets(packets[i], IN_FLIGHT);
		read_capture(argv[4 + i], packets[i]);
	}

	printf("{\"machine\":null,\"outcome\":{\"Ok\":null}}\n");
	fflush(stdout);
	while (getline(&line, &size, stdin) >= 0) {
		double took = 0, lost = 0;
		printf("{\"figures\":[");
		for (int i = 0; i < captures; i++) {
			double hot = slices(decide, packets[i], VECTOR, &took, &lost);
			double in_flight = slices(decide, packets[i], IN_FLIGHT, &took, &lost);
			printf("%s%.6f,%.6f", i ? "," : "", hot, in_flight);
		}
		printf("],\"took\":%.0f,\"lost\":%.6f}\n", took, lost / took);
		fflush(stdout);
	}
	for (int i = 0; i < captures && has_code; i++) {
		for (int packet = 0; packet < IN_FLIGHT; packet++) {
			if (libpcap_matches(packets[i][packet]) != (jit.func(packets[i][packet]) != 0)) {
				printf("{\"Err\":\"libpcap and DPDK disagree on packet %d of %s\"}\n", packet + 1, argv[4 + i]);
				return 0;
			}
		}
	}
	printf("{\"Ok\":null}\n");
	return 0;
}
