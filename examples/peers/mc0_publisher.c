// An mc0 publisher in C: it puts one message to the topic "news" and waits until the middleware confirms it.
// cc mc0_publisher.c -o mc0_publisher -lczmq && ./mc0_publisher tcp://127.0.0.1:61616

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
    zsock_set_linger(dealer, 30000);

    // A letter a frame: z is an empty one, s a string. After the first come the verb, and pairs of a header's key and
    // value; another empty one ends the headers, and the body is any number of frames. An ID asks for an answer.
    zsock_send(dealer, "zsss", "CONNECT", "VERSION", "0.3");
    zsock_send(dealer, "zssssssszs", "PUT", "ID", "1", "TOPIC", "news", "X-Author", "Ada", "hello");

    char *verb = NULL, *key = NULL, *value = NULL;
    int rc = zsock_recv(dealer, "zsss", &verb, &key, &value);
    bool served = rc == 0 && value && streq(verb, "OK") && streq(key, "ID") && streq(value, "1");
    if (verb && value)
        printf("%s %s %s\n", verb, key, value);
    zsock_send(dealer, "zs", "DISCONNECT");

    zstr_free(&verb);
    zstr_free(&key);
    zstr_free(&value);
    zsock_destroy(&dealer);
    return served ? 0 : 1;
}
