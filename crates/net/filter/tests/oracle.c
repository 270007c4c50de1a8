/*
 * Asks libpcap what it makes of expressions, for the tests beside this file.
 *
 * Reads requests from standard input, and answers each on standard output. Integers are of 32 bits, in the byte order
 * of the machine.
 *
 *   request 0: number of packets, and for each its length on the wire, captured length, and captured bytes;
 *              these packets replace those of the last such request, and there is no answer
 *   request 1: link type, length of the expression, the expression
 *   answer:    0, length of the message, the message                                    if libpcap refuses it
 *              1, number of instructions, the instructions, a verdict for each packet   otherwise
 *
 * An instruction is its code, jump offsets and operand, in 8 bytes. A verdict is 0 or 1, or 2 if the program did not
 * end. Packets count as those of a capture file, so that no test is left to the kernel.
 */
#include <pcap/pcap.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define SNAP_LENGTH 262144

static sigjmp_buf endless;

static void on_alarm(int signal)
{
	(void)signal;
	siglongjmp(endless, 1);
}

static void set_alarm(long microseconds)
{
	struct itimerval timer = { { 0, 0 }, { microseconds / 1000000, microseconds % 1000000 } };
	setitimer(ITIMER_REAL, &timer, NULL);
}

static void fail(const char *reason)
{
	fprintf(stderr, "oracle: %s\n", reason);
	exit(1);
}

static int read_exactly(void *to, size_t length)
{
	size_t got = fread(to, 1, length, stdin);
	if (got == 0 && length > 0 && feof(stdin))
		return 0;
	if (got != length)
		fail("a request is cut off");
	return 1;
}

static uint32_t read_number(void)
{
	uint32_t number;
	if (!read_exactly(&number, sizeof number))
		fail("a request is cut off");
	return number;
}

static void write_exactly(const void *from, size_t length)
{
	if (fwrite(from, 1, length, stdout) != length)
		fail("cannot write");
}

static void write_number(uint32_t number)
{
	write_exactly(&number, sizeof number);
}

/* A capture file without packets, so that libpcap takes what it compiles for a filter of a file. */
static pcap_t *open_capture(uint32_t link_type)
{
	struct {
		uint32_t magic;
		uint16_t major, minor;
		int32_t zone;
		uint32_t accuracy, snap_length, link_type;
	} header = { 0xa1b2c3d4, 2, 4, 0, 0, SNAP_LENGTH, link_type };
	char error[PCAP_ERRBUF_SIZE];
	FILE *file = fmemopen(NULL, sizeof header + 1, "w+");
	if (file == NULL || fwrite(&header, sizeof header, 1, file) != 1 || fflush(file) != 0)
		fail("cannot make a file in memory");
	rewind(file);
	pcap_t *capture = pcap_fopen_offline(file, error);
	if (capture == NULL)
		fail(error);
	return capture;
}

/* Only programs with loops can run forever. */
static int has_loop(const struct bpf_program *program)
{
	for (u_int index = 0; index < program->bf_len; index++) {
		const struct bpf_insn *instruction = &program->bf_insns[index];
		if (instruction->code == (BPF_JMP | BPF_JA) && (int32_t)instruction->k < 0)
			return 1;
	}
	return 0;
}

/* libpcap leaves the words of memory as the stack has them. Here they start as 0, as in this project. */
static void __attribute__((noinline)) clear_stack(void)
{
	volatile unsigned char room[1024];
	for (size_t index = 0; index < sizeof room; index++)
		room[index] = 0;
}

static unsigned char run(struct bpf_program *program, struct pcap_pkthdr *header, const unsigned char *packet)
{
	clear_stack();
	if (!has_loop(program))
		return pcap_offline_filter(program, header, packet) != 0;
	unsigned char verdict = 2;
	if (sigsetjmp(endless, 1) == 0) {
		set_alarm(200000);
		verdict = pcap_offline_filter(program, header, packet) != 0;
	}
	set_alarm(0);
	return verdict;
}

struct packet {
	struct pcap_pkthdr header;
	/* An allocation of its own, for tools that watch memory. */
	unsigned char *bytes;
};

static struct packet *packets;
static uint32_t packet_count;

static void load_packets(void)
{
	for (uint32_t index = 0; index < packet_count; index++)
		free(packets[index].bytes);
	free(packets);
	packet_count = read_number();
	packets = calloc(packet_count + 1, sizeof *packets);
	if (packets == NULL)
		fail("no memory");
	for (uint32_t index = 0; index < packet_count; index++) {
		struct packet *packet = &packets[index];
		packet->header.len = read_number();
		packet->header.caplen = read_number();
		packet->bytes = malloc(packet->header.caplen + 1);
		if (packet->bytes == NULL)
			fail("no memory");
		read_exactly(packet->bytes, packet->header.caplen);
	}
}

static void answer(void)
{
	uint32_t link_type = read_number();
	uint32_t length = read_number();
	char *expression = calloc(1, length + 1);
	if (expression == NULL)
		fail("no memory");
	read_exactly(expression, length);
	pcap_t *capture = open_capture(link_type);
	struct bpf_program program;
	if (pcap_compile(capture, &program, expression, 1, PCAP_NETMASK_UNKNOWN)) {
		const char *message = pcap_geterr(capture);
		write_number(0);
		write_number((uint32_t)strlen(message));
		write_exactly(message, strlen(message));
	} else {
		write_number(1);
		write_number(program.bf_len);
		write_exactly(program.bf_insns, program.bf_len * sizeof *program.bf_insns);
		for (uint32_t index = 0; index < packet_count; index++) {
			unsigned char verdict = run(&program, &packets[index].header, packets[index].bytes);
			write_exactly(&verdict, 1);
		}
		pcap_freecode(&program);
	}
	pcap_close(capture);
	free(expression);
	if (fflush(stdout) != 0)
		fail("cannot write");
}

int main(void)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_alarm;
	sigaction(SIGALRM, &action, NULL);
	uint32_t request;
	while (read_exactly(&request, sizeof request)) {
		if (request == 0)
			load_packets();
		else
			answer();
	}
	return 0;
}
