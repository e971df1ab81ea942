// A DCP client in C: it sends one request to the service "echo" and prints the reply.
// cc dcp_client.c -o dcp_client -lczmq && ./dcp_client tcp://127.0.0.1:5555

#include <czmq.h>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s ENDPOINT\n", argv[0]);
        return 2;
    }
    zsock_t *dealer = zsock_new_dealer(argv[1]);
    assert(dealer);
    zsock_set_rcvtimeo(dealer, 30000);

    // A letter a frame: z is an empty one, s a string, f any other.
    zsock_send(dealer, "zssszszs",
               "DGBX\x01",   // z: address delimiter; s: protocol
               "\x04",       // message type: request
               "echo",       // service name; z: client address delimiter
               "request 1",  // metadata, which the reply brings back; z: metadata delimiter
               "hello");     // data

    char *protocol = NULL, *type = NULL, *metadata = NULL, *data = NULL;
    zframe_t *client = NULL;
    int rc = zsock_recv(dealer, "zssfzszs", &protocol, &type, &client, &metadata, &data);
    bool served = rc == 0 && data && streq(protocol, "DGBX\x01") && streq(type, "\x05");
    if (served)
        printf("metadata %s, data %s\n", metadata, data);
    else
        fprintf(stderr, "no reply came\n");

    zstr_free(&protocol);
    zstr_free(&type);
    zframe_destroy(&client);
    zstr_free(&metadata);
    zstr_free(&data);
    zsock_destroy(&dealer);
    return served ? 0 : 1;
}
